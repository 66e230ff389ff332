//! The operator at the edge: watches, dereference, apply, leader election. What to do is decided in
//! `regatta-planner`; here it is done.

mod admin;
mod apply;
mod backoff;
mod cache;
mod context;
mod controllers;
mod dereference;
mod engines;
mod events;
mod lease;
mod metrics;
mod options;
mod rbac;
mod reconcile;
mod restarts;
mod run;
mod written;

pub use lease::Timings;
pub use options::{Error, RunOptions};
pub use rbac::{cluster_rules, lease_rules};
pub use run::run;
