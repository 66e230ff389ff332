//! The engine server: HTTP, tokenizer, templates and the engine loop.

pub mod args;
pub mod engine;
pub mod fetch;
pub mod http;
mod input;
pub mod inspect;
pub mod kv_events;
pub mod load_error;
pub mod log;
mod metrics;
pub mod model;
pub mod openai;
mod record;
pub mod replay;
pub mod serve;
pub mod simulate;
pub mod text;
