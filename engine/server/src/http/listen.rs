//! Accepting connections: bounded in number, header size and time; closed gracefully.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;

/// Most connections at once; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 8192;
const MAX_HEADERS: usize = 100;
const MAX_HEAD_BYTES: usize = 64 << 10;
/// How long a connection may take to send a request's head, and how long it may idle between requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a client may leave what was sent unread, or vanish without a word, before its connection is given up.
#[cfg(target_os = "linux")]
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long open connections get once the server stops and no answer is under way.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after a failed accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {cause}{}", remedy(.cause, .flag))]
pub struct ListenError {
    address: SocketAddr,
    flag: &'static str,
    cause: io::Error,
}

fn remedy(error: &io::Error, flag: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("; stop the process that uses the port, or choose another with {flag}")
        }
        io::ErrorKind::PermissionDenied => format!("; choose a port above 1023 with {flag}"),
        io::ErrorKind::AddrNotAvailable => "; give an address of this machine with --host".to_owned(),
        _ => String::new(),
    }
}

/// Opens a listening socket; `flag` is the one that changes its port.
///
/// # Errors
/// The address with the cause and what to do.
pub async fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|cause| ListenError { address, flag, cause })
}

/// Serves `router` until `stop`, then lets connections finish what they are sending.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let connections = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { break };
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let connection = connections.watch(connection(stream, router.clone()));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended early");
            }
            drop(slot);
        });
    }
    drop(listener);
    if tokio::time::timeout(CLOSE_TIMEOUT, connections.shutdown()).await.is_err() {
        tracing::warn!("some connections did not close in time and are cut");
    }
}

fn connection(
    stream: TcpStream,
    router: Router,
) -> http1::Connection<TokioIo<TcpStream>, TowerToHyperService<Router>> {
    if let Err(error) = set_options(&stream) {
        tracing::debug!(%error, "cannot set a connection's options");
    }
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    // Every token is a small packet of its own: it must leave at once.
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_user_timeout(Some(UNREAD_TIMEOUT))?;
    Ok(())
}
