//! The program as a process: what it refuses at start, how it drains, and how it ends.

mod answers;
mod combinations;
mod engine;
mod refusals;
mod signals;
