//! The program itself with the demo model, held against the reference over HTTP.

mod batching;
mod logprobs;
mod process;
mod reference;
mod tokenizer;
