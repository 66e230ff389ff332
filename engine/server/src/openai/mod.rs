//! OpenAI's API: completions, chat completions and the model list, in vLLM's dialect.

mod answer;
mod beam;
mod best_of;
mod bounded;
mod chat;
mod common;
mod completion;
mod defaults;
mod endpoint;
mod fields;
mod generation;
mod ignored;
mod logprobs;
mod models;
mod numbers;
mod prompt;
mod sampling;
mod start;
mod token_lists;
mod usage;

pub(crate) use chat::chat_completions;
pub(crate) use completion::completions;
pub use defaults::{DefaultsError, GenerationDefaults};
pub(crate) use models::{model, models};
pub(crate) use token_lists::Vocabulary;
