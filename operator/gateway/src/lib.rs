//! The OpenAI-compatible data path: routes requests to engine pods.
//!
//! Watches ([`watch`]) or a supervisor of processes publish a [`Table`] to a [`Gateway`]; every request is answered
//! from the table that holds at that moment. Nothing here asks the API server while a request waits.

mod admin;
mod body;
mod error;
mod forward;
mod gateway;
mod headers;
mod limits;
mod metrics;
mod models;
mod relay;
mod replica;
mod retry;
mod run;
mod server;
mod stall;
mod table;
mod upstream;
mod watch;

pub use gateway::Gateway;
pub use limits::Limits;
pub use replica::Replica;
pub use run::{Options, RunError, run};
pub use server::serve;
pub use table::{Absence, Backend, InFlight, Model, Service, Table, build_table};
