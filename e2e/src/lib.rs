//! A real Kubernetes on one machine, as a library for tests and a command for people.
//!
//! Tests use [`TestNamespace`], [`FaultyProxy`], [`wait_for`] and [`apply_yaml`], inside a cluster that
//! `regatta-cluster run` has started around them. The rest is the command's.

mod apply;
mod cluster;
mod image;
mod instance;
mod packages;
mod programs;
mod progress;
mod testing;
mod workspace;

pub use apply::apply_yaml;
pub use cluster::Size;
pub use image::{COREDNS, PAUSE, Recipe};
pub use instance::{down, init, inside, load, run, status, up};
pub use packages::{check_all as check_packages, install as install_packages};
pub use programs::build_all as build;
pub use testing::{Fault, FaultyProxy, TestNamespace, install_crd, test_client, wait_for};
pub use workspace::Workspace;
