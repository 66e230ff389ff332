//! `regatta-engine`: serve, inspect, fetch.

fn main() {}
