//! Accepts clients, within bounds, and lets their answers end before the process does.

use std::{
    convert::Infallible,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;
use tracing::{debug, info, warn};

use crate::{Gateway, Limits, stall::Stalling};

const MAX_STREAMS: u32 = 256;
const PING: Duration = Duration::from_secs(30);
/// For the last words of answers that did not end in time.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Serves clients on `listener` until `shutdown`; then goes on for `linger`, since others still send requests here,
/// stops accepting, and gives answers under way up to `drain` to end. What is left then ends with an error.
pub async fn serve(
    gateway: Gateway,
    listener: TcpListener,
    linger: Duration,
    drain: Duration,
    shutdown: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    let tasks = TaskTracker::new();
    let cut = CancellationToken::new();
    let stop = async {
        shutdown.cancelled().await;
        gateway.0.stopping.store(true, Ordering::Release);
        sleep(linger).await;
    };
    tokio::select! {
        () = stop => {}
        _ = accept(&gateway, &listener, &graceful, &tasks, &cut) => {}
    }
    drop(listener);
    tasks.close();
    let mut ended = pin!(graceful.shutdown());
    if timeout(drain, &mut ended).await.is_err() {
        warn!(connections = tasks.len(), "ending answers that did not end in time");
        gateway.0.cutting.cancel();
        let _ = timeout(LAST_WORDS, &mut ended).await;
    }
    cut.cancel();
    tasks.wait().await;
    info!("all connections have ended");
}

async fn accept(
    gateway: &Gateway,
    listener: &TcpListener,
    graceful: &GracefulShutdown,
    tasks: &TaskTracker,
    cut: &CancellationToken,
) -> Infallible {
    let slots = Arc::new(Semaphore::new(gateway.0.limits.max_connections));
    let builder = connection_builder(&gateway.0.limits);
    let service = TowerToHyperService::new(
        gateway.router().map_request(|r: http::Request<hyper::body::Incoming>| r.map(axum::body::Body::new)),
    );
    loop {
        let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        let stream = next(listener).await;
        let stream = Stalling::new(stream, gateway.0.limits.write_timeout);
        let connection = builder.serve_connection(TokioIo::new(stream), service.clone()).into_owned();
        let connection = graceful.watch(connection);
        let cut = cut.clone();
        tasks.spawn(async move {
            tokio::select! {
                outcome = connection => if let Err(error) = outcome { debug!(error, "connection ended") },
                () = cut.cancelled() => {}
            }
            drop(slot);
        });
    }
}

async fn next(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Tokens are small; none may wait for the next.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                // Out of descriptors, most likely: give connections time to end.
                warn!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn connection_builder(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_headers(limits.max_headers);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}
