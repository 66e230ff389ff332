//! Model execution: formats, weights, models, sampling and backends. Runs step plans, decides nothing.

pub mod backend;
pub mod config;
pub mod dequantize;
pub mod facts;
pub mod formats;
pub mod kv_layout;
pub mod load;
pub mod memory;
pub mod model;
pub mod runner;
mod sample;
pub mod weights;
