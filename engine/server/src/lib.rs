//! The engine server: HTTP, tokenizer, templates and the engine loop.

pub mod engine;
pub mod text;
