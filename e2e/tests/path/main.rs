//! The whole path on a real node: chart, operator, gateway and engine, from a manifest to a streamed answer.
//!
//! Expects a cluster of size `node` with the images loaded and the chart installed in `regatta-system`, as
//! `make test-cluster` arranges it.

mod bad_services;
mod chat;
mod fixture;
mod healing;
mod memory;
mod names;
mod rollout;
mod scaling;
mod streams;
mod weights;
