//! Engines that only know their load: a server on a loopback address of its own for each pod.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use axum::{Json, Router, routing::get};
use serde_json::json;
use tokio::task::JoinHandle;

/// One engine; ends when dropped.
pub(crate) struct Engine {
    pub(crate) ip: IpAddr,
    in_flight: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Engine {
    pub(crate) async fn start() -> Self {
        // Other test processes take other addresses of 127/8.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number =
                std::process::id().wrapping_mul(251).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            let [_, b, c, d] = number.to_be_bytes();
            let ip = IpAddr::V4(Ipv4Addr::new(127, b.max(1), c, d.clamp(1, 254)));
            let Ok(listener) = tokio::net::TcpListener::bind(SocketAddr::new(ip, 8001)).await else {
                continue;
            };
            let in_flight = Arc::new(AtomicU64::new(0));
            let load = in_flight.clone();
            let state = move || {
                let load = load.load(Ordering::Relaxed);
                async move { Json(json!({"ready": true, "in_flight": load, "kv": {"cached": 0}})) }
            };
            let app = Router::new().route("/internal/state", get(state));
            let task = tokio::spawn(async move { axum::serve(listener, app).await.expect("serves") });
            return Self { ip, in_flight, task };
        }
    }

    pub(crate) fn set_in_flight(&self, count: u64) {
        self.in_flight.store(count, Ordering::Relaxed);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.task.abort();
    }
}
