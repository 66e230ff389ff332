//! The OpenAI-compatible data path: routes requests to engine pods.
