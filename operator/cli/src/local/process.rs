//! Keeps one engine process up: starts it, waits until it is ready, starts it again when it dies.

use std::{
    convert::Infallible,
    path::Path,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader},
    net::TcpListener,
    process::{Child, ChildStderr, ChildStdout, Command},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    engine::{Ports, arguments},
    fleet::{self, Fleet},
    resolve::Run,
};

const POLL: Duration = Duration::from_millis(100);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
const REPORT: Duration = Duration::from_secs(10);
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);
/// A process that lived this long starts again without delay.
const HEALTHY: Duration = Duration::from_secs(60);
/// Starts that never became ready before the process is given up.
const MAX_FAILED_STARTS: u32 = 3;
/// Between SIGTERM and SIGKILL.
const STOP: Duration = Duration::from_secs(15);
const MAX_LINE: u64 = 8192;

/// Keeps the process in `slot` of `run` up until the fleet ends.
///
/// # Errors
/// When it never became ready in several starts.
pub(crate) async fn keep(
    engine: &Path,
    run: &Run,
    slot: u32,
    fleet: &Fleet,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    let name = fleet::name(&run.service, slot);
    let mut backoff = FIRST_BACKOFF;
    let mut failed_starts = 0;
    for start in 0.. {
        let began = Instant::now();
        let (was_ready, end) = life(engine, run, &name, start, fleet, shutdown).await;
        let Some(reason) = end else { return Ok(()) };
        fleet.lost(&name);
        failed_starts = if was_ready { 0 } else { failed_starts + 1 };
        if failed_starts == MAX_FAILED_STARTS {
            say!("{name}: {reason}; giving up after {MAX_FAILED_STARTS} starts");
            fleet.failed(&name);
            if fleet.all_failed() {
                shutdown.cancel();
            }
            return Err(anyhow!("{name}: {reason}"));
        }
        backoff = if began.elapsed() > HEALTHY { FIRST_BACKOFF } else { backoff };
        say!("{name}: {reason}; starting again in {:.1} s", backoff.as_secs_f64());
        tokio::select! {
            () = sleep(backoff) => {}
            () = shutdown.cancelled() => return Ok(()),
        }
        backoff = (backoff * 2).min(LONGEST_BACKOFF);
    }
    Ok(())
}

/// One process from start to end: whether it was ever ready, and why it ended; no reason when it was told to.
async fn life(
    engine: &Path,
    run: &Run,
    name: &str,
    start: u32,
    fleet: &Fleet,
    shutdown: &CancellationToken,
) -> (bool, Option<String>) {
    let ports = match free_ports().await {
        Ok(ports) => ports,
        Err(error) => return (false, Some(format!("no free port: {error}"))),
    };
    let mut child = match spawn(engine, run, ports) {
        Ok(child) => child,
        Err(error) => return (false, Some(format!("{error:#}"))),
    };
    let output = output(child.stdout.take(), child.stderr.take(), name);
    let mut was_ready = false;
    // Until it is ready nobody uses it: a signal ends it at once. Later the gateway ends first.
    let work = async {
        tokio::select! {
            () = becomes_ready(ports.http, name) => {}
            status = child.wait() => return Some(status),
            () = shutdown.cancelled() => return None,
        }
        was_ready = true;
        fleet.ready(name, ports.http, start);
        tokio::select! {
            status = child.wait() => Some(status),
            () = fleet.end.cancelled() => None,
        }
    };
    let ended = tokio::select! { ended = work => ended, never = output => match never {} };
    let reason = match ended {
        Some(status) => Some(describe(status)),
        None => {
            stop(&mut child).await;
            None
        }
    };
    (was_ready, reason)
}

/// A process group of its own keeps the terminal's Ctrl-C away from it: it ends after the gateway.
fn spawn(engine: &Path, run: &Run, ports: Ports) -> anyhow::Result<Child> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let parent = std::process::id().to_string();
    Command::new(own)
        .args(["exec", "--parent", &parent, "--"])
        .arg(engine)
        .args(arguments(&run.service, &run.model, ports))
        // Its lines are passed on; colours would come through as escape codes.
        .env("NO_COLOR", "1")
        .envs(run.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run {}", engine.display()))
}

/// Both are held open until both are known, so that they differ.
async fn free_ports() -> std::io::Result<Ports> {
    let http = TcpListener::bind("127.0.0.1:0").await?;
    let internal = TcpListener::bind("127.0.0.1:0").await?;
    Ok(Ports { http: http.local_addr()?.port(), internal: internal.local_addr()?.port() })
}

async fn becomes_ready(port: u16, name: &str) {
    let client =
        reqwest::Client::builder().no_proxy().timeout(PROBE_TIMEOUT).build().expect("a plain client");
    let url = format!("http://127.0.0.1:{port}/readyz");
    let began = Instant::now();
    let mut reported = began;
    say!("{name}: loading the model");
    loop {
        if client.get(&url).send().await.is_ok_and(|r| r.status().is_success()) {
            say!("{name}: ready after {:.1} s", began.elapsed().as_secs_f64());
            return;
        }
        if reported.elapsed() > REPORT {
            reported = Instant::now();
            say!("{name}: still loading after {} s", began.elapsed().as_secs());
        }
        sleep(POLL).await;
    }
}

/// Passes what the process writes on to standard error, line by line under its name, as long as it is polled.
async fn output(out: Option<ChildStdout>, err: Option<ChildStderr>, name: &str) -> Infallible {
    let out = async {
        if let Some(pipe) = out {
            lines(pipe, name).await;
        }
    };
    let err = async {
        if let Some(pipe) = err {
            lines(pipe, name).await;
        }
    };
    tokio::join!(out, err);
    std::future::pending().await
}

async fn lines(pipe: impl AsyncRead + Unpin, name: &str) {
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => say!("[{name}] {}", String::from_utf8_lossy(&line).trim_end()),
        }
    }
}

async fn stop(child: &mut Child) {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        let _ = kill_process(pid, Signal::TERM);
    }
    if timeout(STOP, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

fn describe(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => format!("the engine ended ({status})"),
        Err(error) => format!("lost sight of the engine: {error}"),
    }
}
