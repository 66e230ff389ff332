//! The Regatta API types: `LLMService`, its status, CEL rules and conditions.
