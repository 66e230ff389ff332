//! Names: who owns a served model name, and how generated objects are called.

mod objects;
mod ownership;

pub use objects::{MAX_GENERATED_NAME, pod_name, revision_name, service_name};
pub use ownership::{Claim, Conflict, Owners};
