//! Pure planning for the operator: validate, plan, build, status. Values in, values out.

pub mod build;
pub mod contract;
mod hash;
pub mod names;
pub mod observed;
pub mod plan;
pub mod revision;
pub mod status;
pub mod validate;
mod words;

pub use observed::ObservedPod;
pub use plan::{Plan, plan};
pub use status::status;
pub use validate::{Place, SpecError, ValidatedService, validate};
