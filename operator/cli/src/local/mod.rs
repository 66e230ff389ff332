//! `regatta local`: the same manifest on one machine. Validation, names, arguments and gateway are those of a
//! cluster; only the pods are processes here.

/// Tells the person at the terminal. A terminal or pipe that is gone takes no service down with it.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod budget;
mod cache;
mod engine;
mod exclusive;
mod fleet;
mod manifest;
mod metrics;
mod output;
mod probe;
mod process;
mod resolve;
#[cfg(test)]
mod testing;

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use futures::future::join_all;
use regatta_gateway::{Gateway, Limits};
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{args::LocalArgs, shutdown};
use fleet::Fleet;
use process::Keeper;
use resolve::Run;

/// For answers to reach their clients once all engines have ended.
const FLUSH: Duration = Duration::from_secs(2);

/// Runs the services of a manifest until a signal.
///
/// # Errors
/// When the manifest, a model, the engine or the port is at fault, or when every engine failed for good.
pub(crate) async fn run(args: LocalArgs) -> anyhow::Result<()> {
    let shutdown = shutdown::on_signal()?;
    let services = manifest::read(&args.file)?;
    let engine = engine::locate(args.engine.as_deref())?;
    let listener = listen(args.port, "--port").await?;
    let metrics = match args.metrics_port {
        Some(port) => Some(listen(port, "--metrics-port").await?),
        None => None,
    };
    let metrics_address = metrics.as_ref().map(TcpListener::local_addr).transpose()?;
    let mut runs = Vec::new();
    for service in &services {
        runs.push(resolve::resolve(service, &args.pvc)?);
    }
    for run in &runs {
        tokio::select! {
            outcome = cache::fetch(&engine, run) => outcome?,
            () = shutdown.cancelled() => return Ok(()),
        }
    }
    budget::share(&mut runs);
    let gateway = Gateway::new(Limits::default());
    let fleet = Arc::new(Fleet::new(&services, gateway.clone()));
    let pages = metrics::serve(metrics, gateway.clone(), fleet.clone());
    let keeper = Keeper { engine: &engine, fleet: &fleet, shutdown: &shutdown };
    let ended = CancellationToken::new();
    // Engines are started from this task, hence from the main thread: their death signal follows that thread.
    let engines = async {
        let outcomes =
            join_all(runs.iter().flat_map(|run| (0..run.replicas).map(|slot| keeper.keep(run, slot)))).await;
        ended.cancel();
        outcomes
    };
    let metrics = metrics_address.map_or_else(String::new, |a| format!("; metrics at http://{a}/metrics"));
    let front = Front { gateway, listener, metrics };
    let outcomes = tokio::select! {
        (outcomes, ()) = async { tokio::join!(engines, front.serve(&fleet, &runs, &shutdown, &ended)) } => outcomes,
        never = pages => match never {},
    };
    let mut faults: Vec<String> =
        outcomes.iter().filter_map(|o| o.as_ref().err()).map(ToString::to_string).collect();
    if !faults.is_empty() && faults.len() == outcomes.len() {
        faults.dedup();
        bail!("no engine could be started: {}", faults.join("; "));
    }
    Ok(())
}

async fn listen(port: u16, option: &str) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    bound.with_context(|| format!("cannot listen on 127.0.0.1:{port}; choose another port with {option}"))
}

/// What clients of a run meet.
struct Front {
    gateway: Gateway,
    listener: TcpListener,
    /// Where metrics are, as a part of a sentence.
    metrics: String,
}

impl Front {
    /// Clients are let in once every engine had its chance, so that the first request finds what it asks for. After a
    /// signal each engine finishes what it has within its service's drain timeout; once all have ended, so does this.
    async fn serve(
        self,
        fleet: &Fleet,
        runs: &[Run],
        shutdown: &CancellationToken,
        ended: &CancellationToken,
    ) {
        tokio::select! {
            () = fleet.settled() => {}
            () = shutdown.cancelled() => return,
        }
        if shutdown.is_cancelled() {
            return;
        }
        let address = self.listener.local_addr().map_or_else(|_| "127.0.0.1".into(), |a| a.to_string());
        say!("{}{}; stop with Ctrl-C", fleet.summary(&address), self.metrics);
        let longest = runs.iter().map(|run| run.service.drain_timeout).max().unwrap_or_default();
        let all_gone = async {
            shutdown.cancelled().await;
            say!(
                "stopping; requests under way have up to {} s, a second Ctrl-C ends them at once",
                longest.as_secs()
            );
            ended.cancelled().await;
            sleep(FLUSH).await;
        };
        let serving = regatta_gateway::serve(
            self.gateway,
            self.listener,
            Duration::ZERO,
            longest + FLUSH,
            shutdown.clone(),
        );
        tokio::select! {
            () = serving => {}
            () = all_gone => {}
        }
    }
}
