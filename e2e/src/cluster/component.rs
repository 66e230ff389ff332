//! One long-running program of the cluster, with its log.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::packages::search_path;

/// Lines of a log shown when its program has ended by itself.
const TAIL_LINES: usize = 15;

/// A started program. Nothing stops it but the end of the namespaces it lives in.
pub(crate) struct Component {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Component {
    /// Starts `command` with its output in `LOGS/NAME.log`.
    pub(crate) fn start(name: &str, logs: &Path, mut command: Command) -> Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let errors = output.try_clone().context("cannot share a log")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            // A group of its own: Ctrl-C in the terminal is for the person's command, not for the cluster.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name} ({})", command.get_program().display()))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// An error, with the end of the log, when the program has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().with_context(|| format!("cannot watch {}", self.name))? {
            bail!("{} ended ({status}); the end of {}:\n{}", self.name, self.log.display(), tail(&self.log));
        }
        Ok(())
    }
}

fn tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Runs a short command to its end.
///
/// # Errors
/// When it cannot be started or fails; the text holds the command line and what it printed.
pub(crate) fn execute(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", search_path())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {} failed ({}): {}", arguments.join(" "), output.status, message.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
