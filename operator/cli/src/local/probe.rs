//! Probes of an engine process, as the kubelet makes them of a container.

use std::time::Duration;

use regatta_planner::contract::{
    LIVENESS_FAILURES, LIVENESS_PERIOD_SECONDS, LIVEZ_PATH, PROBE_TIMEOUT_SECONDS, READINESS_FAILURES,
    READINESS_PERIOD_SECONDS, READYZ_PATH, STARTUP_PERIOD_SECONDS,
};
use reqwest::Client;
use tokio::time::sleep;

/// One kind of probe of one process.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    client: Client,
    url: String,
    period: Duration,
    /// Failures in a row that count.
    failures: u32,
}

impl Probe {
    /// Whether it loads still.
    pub(crate) fn startup(port: u16) -> Self {
        Self::new(port, READYZ_PATH, STARTUP_PERIOD_SECONDS, 1)
    }

    /// Whether requests may go to it.
    pub(crate) fn readiness(port: u16) -> Self {
        Self::new(port, READYZ_PATH, READINESS_PERIOD_SECONDS, READINESS_FAILURES)
    }

    /// Whether it hangs.
    pub(crate) fn liveness(port: u16) -> Self {
        Self::new(port, LIVEZ_PATH, LIVENESS_PERIOD_SECONDS, LIVENESS_FAILURES)
    }

    fn new(port: u16, path: &str, period_seconds: i32, failures: i32) -> Self {
        let timeout = Duration::from_secs(u64::from(PROBE_TIMEOUT_SECONDS.unsigned_abs()));
        Self {
            client: Client::builder().no_proxy().timeout(timeout).build().expect("a plain client"),
            url: format!("http://127.0.0.1:{port}{path}"),
            period: Duration::from_secs(u64::from(period_seconds.unsigned_abs())),
            failures: failures.unsigned_abs(),
        }
    }

    /// Resolves after one success.
    pub(crate) async fn succeeds(&self) {
        while !self.once().await {
            sleep(self.period).await;
        }
    }

    /// Resolves after as many failures in a row as count.
    pub(crate) async fn fails(&self) {
        let mut failed = 0;
        while failed < self.failures {
            sleep(self.period).await;
            failed = if self.once().await { 0 } else { failed + 1 };
        }
    }

    async fn once(&self) -> bool {
        self.client.get(&self.url).send().await.is_ok_and(|answer| answer.status().is_success())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time::timeout,
    };

    use super::*;

    /// A process that answers probes with these statuses in turn, and from then on not at all.
    async fn process(statuses: &'static [u16]) -> (u16, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let answered = Arc::new(AtomicUsize::new(0));
        let count = answered.clone();
        tokio::spawn(async move {
            let mut silent = Vec::new();
            let mut statuses = statuses.iter();
            while let Ok((mut stream, _)) = listener.accept().await {
                let Some(status) = statuses.next() else {
                    silent.push(stream);
                    continue;
                };
                let _ = stream.read(&mut [0; 1024]).await;
                let head = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                let _ = stream.write_all(head.as_bytes()).await;
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        (port, answered)
    }

    fn quick(port: u16) -> Probe {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().timeout(Duration::from_millis(200)).build();
        Probe {
            client: client.expect("a plain client"),
            period: Duration::from_millis(1),
            failures: 3,
            ..Probe::liveness(port)
        }
    }

    #[tokio::test]
    async fn a_process_that_hangs_is_given_up_after_failures_in_a_row() {
        let (port, answered) = process(&[200, 503, 503, 200]).await;
        timeout(Duration::from_secs(20), quick(port).fails()).await.expect("given up");
        assert_eq!(answered.load(Ordering::SeqCst), 4, "two failures and a success are no reason to give up");
    }

    #[tokio::test]
    async fn a_process_is_ready_with_its_first_success() {
        let (port, answered) = process(&[503, 503, 200, 200]).await;
        timeout(Duration::from_secs(20), quick(port).succeeds()).await.expect("ready");
        assert_eq!(answered.load(Ordering::SeqCst), 3);
    }
}
