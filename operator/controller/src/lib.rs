//! The operator at the edge: watches, dereference, apply, leader election.

mod options;

pub use options::{Error, RunOptions, run};
