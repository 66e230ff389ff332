//! The devices that the pod was given.

/// The pod reserved a device that would idle.
#[derive(Debug, thiserror::Error)]
#[error(
    "this pod was given an accelerator ({0}), and this engine has no backend for one: remove `spec.accelerator` from the \
     LLMService to run on CPUs, or use an engine image with a backend for it"
)]
pub struct AcceleratorError(String);

/// Holds `REGATTA_ACCELERATOR` (`<resource name>=<count>`) against the backends of this program, which run on CPUs.
///
/// # Errors
/// When there is an accelerator.
pub(super) fn check(accelerator: Option<&str>) -> Result<(), AcceleratorError> {
    match accelerator.map(str::trim) {
        None | Some("") => Ok(()),
        Some(accelerator) => Err(AcceleratorError(accelerator.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accelerator_without_a_backend_is_refused_with_the_reason() {
        assert!(check(None).is_ok() && check(Some("")).is_ok());
        let text = check(Some("nvidia.com/gpu=1")).unwrap_err().to_string();
        assert!(text.contains("nvidia.com/gpu=1") && text.contains("spec.accelerator"), "{text}");
    }
}
