//! `regatta-cluster`: brings a real Kubernetes up and down on this machine.

fn main() {}
