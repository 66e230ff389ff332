//! A proxy that breaks connections on demand. It knows nothing of what they carry, TLS included.

use std::{io, net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use kube::Client;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::sleep,
};

use super::config;

/// What the proxy does, beside passing bytes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Holds every piece back for as long.
    Delay(Duration),
    /// Closes new connections at once; open ones go on.
    Refuse,
}

/// A way to a server that can be made a bad one. Dropping it closes every connection.
#[derive(Debug)]
pub struct FaultyProxy {
    address: SocketAddr,
    fault: watch::Sender<Fault>,
    cuts: watch::Sender<()>,
    accepting: AbortHandle,
}

impl FaultyProxy {
    /// Listens on a free port of the loopback interface and passes on to `server`.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (fault, cuts) = (watch::Sender::new(Fault::None), watch::Sender::new(()));
        let accepting =
            tokio::spawn(accept(listener, server, fault.subscribe(), cuts.clone())).abort_handle();
        Ok(Self { address, fault, cuts, accepting })
    }

    /// A proxy before the API server of the cluster around this test, and a client of it that goes through the proxy.
    ///
    /// # Errors
    /// When there is no cluster, or its API server has no address that can be connected to.
    pub async fn before_api_server() -> Result<(Self, Client)> {
        let mut config = config().await?;
        let server = config.cluster_url.authority().context("a server has an address")?.to_string();
        let server = tokio::net::lookup_host(server).await.context("cannot resolve the API server")?.next();
        let proxy = Self::start(server.context("the API server has no address")?).await?;
        // The certificate stays the one of the server.
        config.tls_server_name = config.cluster_url.host().map(ToOwned::to_owned);
        config.cluster_url = format!("https://{}", proxy.address).parse().context("an address is a URL")?;
        Ok((proxy, Client::try_from(config).context("cannot make a client")?))
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, for open connections too.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// Closes every open connection, whatever it carries.
    pub fn cut(&self) {
        self.cuts.send_replace(());
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    fault: watch::Receiver<Fault>,
    cuts: watch::Sender<()>,
) {
    // Ends its connections when this task does.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        if *fault.borrow() == Fault::Refuse {
            continue;
        }
        let (fault, mut cut) = (fault.clone(), cuts.subscribe());
        connections.spawn(async move {
            tokio::select! {
                _ = pass(client, server, fault) => {}
                _ = cut.changed() => {}
            }
        });
    }
}

async fn pass(client: TcpStream, server: SocketAddr, fault: watch::Receiver<Fault>) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::try_join!(copy(from_client, to_server, fault.clone()), copy(from_server, to_client, fault))?;
    Ok(())
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    fault: watch::Receiver<Fault>,
) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = from.read(&mut buffer).await?;
        let fault = *fault.borrow();
        if let Fault::Delay(delay) = fault {
            sleep(delay).await;
        }
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A server that sends back what it gets, behind a proxy.
    async fn echo() -> FaultyProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        FaultyProxy::start(address).await.expect("a port")
    }

    async fn connect(proxy: &FaultyProxy) -> TcpStream {
        TcpStream::connect(proxy.address()).await.expect("accepted")
    }

    /// What comes back for `text`; less than it when the connection ends.
    async fn said(stream: &mut TcpStream, text: &str) -> String {
        let mut answer = vec![0; text.len()];
        let mut read = 0;
        if stream.write_all(text.as_bytes()).await.is_err() {
            return String::new();
        }
        while read < answer.len() {
            match timeout(PATIENCE, stream.read(&mut answer[read..])).await.expect("in time") {
                Ok(n @ 1..) => read += n,
                _ => break,
            }
        }
        String::from_utf8_lossy(&answer[..read]).into_owned()
    }

    #[tokio::test]
    async fn bytes_pass_both_ways_and_so_does_the_end() {
        let proxy = echo().await;
        let mut stream = connect(&proxy).await;
        assert_eq!(said(&mut stream, "hello").await, "hello");
        stream.shutdown().await.expect("ended");
        assert_eq!(stream.read(&mut [0]).await.expect("an end"), 0);
    }

    #[tokio::test]
    async fn a_cut_ends_every_open_connection_and_no_later_one() {
        let proxy = echo().await;
        let mut open = [connect(&proxy).await, connect(&proxy).await];
        for stream in &mut open {
            assert_eq!(said(stream, "hello").await, "hello");
        }
        proxy.cut();
        for stream in &mut open {
            let end = timeout(PATIENCE, stream.read(&mut [0])).await.expect("in time");
            assert!(matches!(end, Ok(0) | Err(_)));
        }
        assert_eq!(said(&mut connect(&proxy).await, "again").await, "again");
    }

    #[tokio::test]
    async fn a_refusal_meets_new_connections_only() {
        let proxy = echo().await;
        let mut old = connect(&proxy).await;
        assert_eq!(said(&mut old, "hello").await, "hello");
        proxy.set(Fault::Refuse);
        assert_eq!(said(&mut connect(&proxy).await, "hello").await, "");
        assert_eq!(said(&mut old, "still").await, "still");
        proxy.set(Fault::None);
        assert_eq!(said(&mut connect(&proxy).await, "again").await, "again");
    }

    #[tokio::test]
    async fn a_delay_holds_each_piece_back() {
        let proxy = echo().await;
        let mut stream = connect(&proxy).await;
        let delay = Duration::from_millis(50);
        proxy.set(Fault::Delay(delay));
        let began = Instant::now();
        assert_eq!(said(&mut stream, "hello").await, "hello");
        assert!(began.elapsed() >= 2 * delay, "once on the way there, once on the way back");
    }
}
