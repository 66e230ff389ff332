//! `regatta`: operator, gateway, local, crd.

fn main() {}
