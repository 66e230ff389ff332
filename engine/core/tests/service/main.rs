//! Who is served, when, and what becomes of those who give way.

mod ahead;
mod faults;
mod prefill;
mod priority;
mod swap;
mod world;
