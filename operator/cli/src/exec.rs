//! A child that cannot outlive its parent: it asks the kernel for a signal at the parent's death, then becomes the
//! program it was asked to be. So engines end even when `regatta local` is killed.

use std::{os::unix::process::CommandExt, process::Command};

use anyhow::{Context, bail};

use crate::args::ExecArgs;

/// Becomes the program; returns only on failure.
///
/// # Errors
/// When the parent is gone already or the program cannot be run.
pub(crate) fn run(args: ExecArgs) -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .context("cannot ask for a signal at the parent's death")?;
    // The parent may have died before the request above.
    if rustix::process::getppid().map(rustix::process::Pid::as_raw_pid) != Some(args.parent) {
        bail!("the parent process {} is gone", args.parent);
    }
    let [program, rest @ ..] = args.command.as_slice() else { bail!("no program was named") };
    Err(Command::new(program).args(rest).exec()).with_context(|| format!("cannot run {}", program.display()))
}
