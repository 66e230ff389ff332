//! The pod's annotations, as a downward API volume shows them: the operator's way to say that the pod drains.

use std::{
    io::{self, Read},
    path::Path,
    time::Duration,
};

/// The annotation whose presence, with any value, means that the pod drains.
const DRAINING_ANNOTATION: &str = "regatta.dev/draining";

const FILE: &str = "annotations";
const PERIOD: Duration = Duration::from_millis(250);
/// All annotations of an object together have at most 256 KiB; quoting may lengthen them.
const MAX_BYTES: u64 = 2 << 20;

/// Tells `report` what the file says, now and whenever it is looked at again. The kubelet swaps a symbolic link, so the
/// file is opened anew each time. Never returns.
pub(super) async fn watch(folder: &Path, report: impl Fn(bool)) {
    let path = folder.join(FILE);
    let mut missing = false;
    loop {
        match read(&path) {
            Ok(annotations) => {
                missing = false;
                report(is_draining(&annotations));
            }
            // The last known state holds: a file that goes away for a moment must not undo a drain.
            Err(error) if !missing => {
                missing = true;
                tracing::warn!(path = %path.display(), %error, "cannot read the pod's annotations");
            }
            Err(_) => {}
        }
        tokio::time::sleep(PERIOD).await;
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Each line is `key="value"` with the value quoted on one line.
fn is_draining(annotations: &str) -> bool {
    annotations.lines().any(|line| line.split_once('=').is_some_and(|(key, _)| key == DRAINING_ANNOTATION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_value_of_the_annotation_means_draining() {
        assert!(is_draining("a=\"b\"\nregatta.dev/draining=\"2026-01-01T00:00:00Z\"\n"));
        assert!(is_draining("regatta.dev/draining=\"\""));
        assert!(!is_draining(""));
        assert!(!is_draining("regatta.dev/draining-since=\"x\"\nnote=\"regatta.dev/draining=\\\"x\\\"\""));
    }
}
