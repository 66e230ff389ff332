//! A real Kubernetes on one machine, as a library for tests and a command for people.
