//! The engine server: HTTP, tokenizer, templates and the engine loop.
