//! The HTTP surface on a real socket, over the real engine thread and a runner without a model.

mod chat;
mod completions;
mod exposition;
mod harness;
mod known_faults;
mod lifecycle;
mod prefix_cache;
mod refusals;
mod surface;
mod vocabulary;
