//! `regatta local`: the same manifest on one machine. Validation, names, arguments and gateway are those of a
//! cluster; only the pods are processes here.

/// Tells the person at the terminal. A terminal or pipe that is gone takes no service down with it.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod cache;
mod engine;
mod fleet;
mod manifest;
mod process;
mod resolve;

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use futures::future::join_all;
use regatta_gateway::{Gateway, Limits};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{args::LocalArgs, shutdown};
use fleet::Fleet;

/// How long answers under way may take after Ctrl-C.
const DRAIN: Duration = Duration::from_secs(10);

/// Runs the services of a manifest until a signal.
///
/// # Errors
/// When the manifest, a model, the engine or the port is at fault, or when every engine failed for good.
pub(crate) async fn run(args: LocalArgs) -> anyhow::Result<()> {
    let shutdown = shutdown::on_signal()?;
    let services = manifest::read(&args.file)?;
    let engine = Arc::new(engine::locate(args.engine.as_deref())?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).await.with_context(|| {
        format!("cannot listen on 127.0.0.1:{}; choose another port with --port", args.port)
    })?;
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
    let gateway = Gateway::new(Limits::default());
    let fleet = Arc::new(Fleet::new(&services, gateway.clone()));
    // Engines are started from this task, hence from the main thread: their death signal follows that thread.
    let engines = async {
        join_all(runs.iter().flat_map(|run| {
            (0..run.replicas).map(|slot| process::keep(&engine, run, slot, &fleet, &shutdown))
        }))
        .await
    };
    let serve = async {
        serve(gateway, listener, &fleet, &shutdown).await;
        fleet.end.cancel();
    };
    let outcomes = tokio::join!(engines, serve).0;
    if !outcomes.is_empty() && outcomes.iter().all(Result::is_err) {
        bail!("no engine could be started; the reason stands above");
    }
    Ok(())
}

/// Clients are let in once every engine had its chance, so that the first request finds what it asks for.
async fn serve(gateway: Gateway, listener: TcpListener, fleet: &Fleet, shutdown: &CancellationToken) {
    tokio::select! {
        () = fleet.settled() => {}
        () = shutdown.cancelled() => return,
    }
    if shutdown.is_cancelled() {
        return;
    }
    let address = listener.local_addr().map_or_else(|_| "127.0.0.1".into(), |a| a.to_string());
    say!("ready: http://{address}/v1 serves {}; stop with Ctrl-C", fleet.names().join(", "));
    regatta_gateway::serve(gateway, listener, Duration::ZERO, DRAIN, shutdown.clone()).await;
}
