//! Pure planning for the operator: validate, plan, build, status. Values in, values out.

pub mod contract;
pub mod names;
