//! Model execution: formats, weights, models, sampling and backends. Runs step plans, decides nothing.

pub mod backend;
pub mod formats;
pub mod weights;
