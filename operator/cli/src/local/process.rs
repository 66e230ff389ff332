//! Keeps one engine process up: starts it, waits until it is ready, starts it again when it dies or hangs.

use std::{
    path::Path,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use regatta_planner::contract::REFUSED_EXIT_CODE;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    net::TcpListener,
    process::{Child, Command},
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    engine::{Ports, arguments},
    fleet::{self, Fleet},
    output::Output,
    probe::Probe,
    resolve::Run,
};

const REPORT: Duration = Duration::from_secs(10);
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);
/// A process that lived this long starts again without delay.
const HEALTHY: Duration = Duration::from_secs(60);
/// Starts that never became ready before the process is given up.
const MAX_FAILED_STARTS: u32 = 3;
/// What an engine gets beyond its drain timeout before it is killed.
const STOP: Duration = Duration::from_secs(15);

/// What all processes of a run share.
#[derive(Clone, Copy)]
pub(crate) struct Keeper<'a> {
    /// The program.
    pub engine: &'a Path,
    pub fleet: &'a Fleet,
    /// Cancelled when the run is to end.
    pub shutdown: &'a CancellationToken,
}

/// Why a process ended that was not told to.
struct End {
    was_ready: bool,
    /// Another start would end the same way.
    refused: bool,
    reason: String,
}

impl Keeper<'_> {
    /// Keeps the process in `slot` of `run` up until the run ends.
    ///
    /// # Errors
    /// When it can never become ready, or did not in several starts.
    pub(crate) async fn keep(self, run: &Run, slot: u32) -> anyhow::Result<()> {
        let name = fleet::name(&run.service, slot);
        let mut backoff = FIRST_BACKOFF;
        let mut failed_starts = 0;
        for start in 0.. {
            let began = Instant::now();
            let Some(end) = self.life(run, &name, start).await else { return Ok(()) };
            self.fleet.unready(&name);
            failed_starts = if end.was_ready { 0 } else { failed_starts + 1 };
            if end.refused || failed_starts == MAX_FAILED_STARTS {
                let starts =
                    if end.refused { String::new() } else { format!(" after {failed_starts} starts") };
                say!("{name}: {}; giving up{starts}", end.reason);
                self.fleet.failed(&name);
                if self.fleet.all_failed() {
                    self.shutdown.cancel();
                }
                return Err(anyhow!("{name}: {}", end.reason));
            }
            backoff = if began.elapsed() > HEALTHY { FIRST_BACKOFF } else { backoff };
            say!("{name}: {}; starting again in {:.1} s", end.reason, backoff.as_secs_f64());
            tokio::select! {
                () = sleep(backoff) => {}
                () = self.shutdown.cancelled() => return Ok(()),
            }
            backoff = (backoff * 2).min(LONGEST_BACKOFF);
        }
        Ok(())
    }

    /// One process from start to end; `None` when it was told to end.
    async fn life(self, run: &Run, name: &str, start: u32) -> Option<End> {
        let failed = |reason: String| Some(End { was_ready: false, refused: false, reason });
        let ports = match free_ports().await {
            Ok(ports) => ports,
            Err(error) => return failed(format!("no free port: {error}")),
        };
        let mut child = match spawn(self.engine, run, ports) {
            Ok(child) => child,
            Err(error) => return failed(format!("{error:#}")),
        };
        let output = Output::new(child.stdout.take(), child.stderr.take());
        let mut was_ready = false;
        let work = async {
            // Until it is ready it has nothing to finish.
            tokio::select! {
                () = becomes_ready(ports.http, name) => {}
                ended = wait(&mut child) => return Some(ended),
                () = self.shutdown.cancelled() => {
                    stop(&mut child, STOP).await;
                    return None;
                }
            }
            was_ready = true;
            self.fleet.ready(name, ports.http, start);
            self.attend(run, &mut child, ports.http, name, start).await
        };
        let (ended, last_error) = output.during(name, work).await;
        let ended = ended?;
        let code = ended.as_ref().ok().and_then(ExitStatus::code);
        let refused = !was_ready && code == Some(REFUSED_EXIT_CODE);
        Some(End { was_ready, refused, reason: reason(ended, refused, last_error) })
    }

    /// Looks after a process that is ready until it ends.
    async fn attend(
        self,
        run: &Run,
        child: &mut Child,
        port: u16,
        name: &str,
        start: u32,
    ) -> Option<Result<ExitStatus, String>> {
        let liveness = Probe::liveness(port);
        tokio::select! {
            ended = wait(child) => return Some(ended),
            () = self.shutdown.cancelled() => {}
            () = liveness.fails() => {
                self.fleet.unready(name);
                stop(child, STOP).await;
                return Some(Err("the engine hung: it answered no liveness probe".to_owned()));
            }
            never = self.route(port, name, start) => match never {},
        }
        // The engine itself ends what is under way within the service's drain timeout.
        stop(child, run.service.drain_timeout + STOP).await;
        None
    }

    /// Takes the process off the routes while it says that it is not ready.
    async fn route(self, port: u16, name: &str, start: u32) -> std::convert::Infallible {
        let readiness = Probe::readiness(port);
        loop {
            readiness.fails().await;
            say!("{name}: not ready any more");
            self.fleet.unready(name);
            readiness.succeeds().await;
            say!("{name}: ready again");
            self.fleet.ready(name, port, start);
        }
    }
}

/// A process group of its own keeps the terminal's Ctrl-C away from it: it is told to end once, by this program.
fn spawn(engine: &Path, run: &Run, ports: Ports) -> anyhow::Result<Child> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let parent = std::process::id().to_string();
    Command::new(own)
        .args(["exec", "--parent", &parent, "--"])
        .arg(engine)
        .args(arguments(run, ports))
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
    let began = Instant::now();
    say!("{name}: loading the model");
    let report = async {
        let mut ticks = interval(REPORT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            say!("{name}: still loading after {} s", began.elapsed().as_secs());
        }
    };
    let startup = Probe::startup(port);
    tokio::select! {
        () = startup.succeeds() => {}
        never = report => match never {},
    }
    say!("{name}: ready after {:.1} s on http://127.0.0.1:{port}", began.elapsed().as_secs_f64());
}

async fn wait(child: &mut Child) -> Result<ExitStatus, String> {
    child.wait().await.map_err(|error| format!("lost sight of the engine: {error}"))
}

async fn stop(child: &mut Child, limit: Duration) {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        let _ = kill_process(pid, Signal::TERM);
    }
    if timeout(limit, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

fn reason(ended: Result<ExitStatus, String>, refused: bool, last_error: Option<String>) -> String {
    let what = match ended {
        Ok(_) if refused => "the engine cannot run like this".to_owned(),
        Ok(status) => format!("the engine ended ({status})"),
        Err(reason) => return reason,
    };
    last_error.map_or(what.clone(), |error| format!("{what}: {error}"))
}
