//! `regatta local` with the real engine: what it answers, and how it ends.

mod answers;
mod ending;
mod harness;
mod starting;
