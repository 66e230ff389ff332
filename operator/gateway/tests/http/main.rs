//! The gateway over real connections, between real clients and engines.

mod answers;
mod streams;
mod support;
