//! The engine server: HTTP, tokenizer, templates and the engine loop.

pub mod args;
pub mod engine;
pub mod http;
mod metrics;
pub mod model;
pub mod openai;
pub mod text;
