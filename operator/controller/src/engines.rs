//! Asking engines for their state: the one thing that is observed outside the API server.

use std::{collections::HashMap, net::IpAddr, sync::Mutex, time::Duration};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use regatta_planner::{
    ObservedPod,
    contract::{INTERNAL_PORT, STATE_PATH},
    observed::{EngineState, EngineView},
    plan,
};

/// An engine answers from memory; one that takes longer counts as silent.
const DEADLINE: Duration = Duration::from_secs(1);
/// Engines of one service that are asked at once.
const MAX_AT_ONCE: usize = 32;
/// Longest answer that is read.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Namespace and name of a service.
type Key = (String, String);
/// UIDs of draining pods, and since when each is idle.
type Idle = HashMap<String, Timestamp>;

pub(crate) struct Engines {
    http: reqwest::Client,
    /// Forgotten when the process ends: then an engine is watched a second longer.
    idle: Mutex<HashMap<Key, Idle>>,
}

impl Engines {
    pub(crate) fn new() -> Result<Self, reqwest::Error> {
        let http =
            reqwest::Client::builder().timeout(DEADLINE).connect_timeout(DEADLINE).no_proxy().build()?;
        Ok(Self { http, idle: Mutex::default() })
    }

    /// Fills in what the engines say on which the next plan depends.
    pub(crate) async fn ask(&self, namespace: &str, service: &str, replicas: u32, pods: &mut [ObservedPod]) {
        let asked: Vec<_> = plan::questions(replicas, pods)
            .into_iter()
            .filter_map(|p| Some((p.uid.clone(), p.address.as_deref()?.parse().ok()?)))
            .collect();
        let answers: HashMap<String, EngineView> = stream::iter(asked)
            .map(async |(uid, ip)| (uid, self.state(ip).await))
            .buffer_unordered(MAX_AT_ONCE)
            .collect()
            .await;
        for pod in pods.iter_mut() {
            if let Some(view) = answers.get(&pod.uid) {
                pod.engine = view.clone();
            }
        }
        self.note_idle((namespace.to_owned(), service.to_owned()), pods, Timestamp::now());
    }

    async fn state(&self, ip: IpAddr) -> EngineView {
        match self.fetch(ip).await {
            Ok(state) => EngineView::State(state),
            Err(error) => {
                tracing::debug!(%ip, %error, "an engine does not tell its state");
                EngineView::Silent
            }
        }
    }

    async fn fetch(&self, ip: IpAddr) -> Result<EngineState, Silence> {
        let port = u16::try_from(INTERNAL_PORT).expect("a port");
        let url = format!("http://{}{STATE_PATH}", std::net::SocketAddr::new(ip, port));
        let mut response = self.http.get(url).send().await?.error_for_status()?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(Silence::TooLong);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(serde_json::from_slice(&body)?)
    }

    fn note_idle(&self, key: Key, pods: &mut [ObservedPod], now: Timestamp) {
        let mut all = self.idle.lock().expect("never poisoned");
        let before = all.remove(&key).unwrap_or_default();
        let mut idle = Idle::new();
        for pod in pods.iter_mut().filter(|p| p.drain.is_some()) {
            if matches!(&pod.engine, EngineView::State(state) if state.in_flight == 0) {
                let since = before.get(&pod.uid).copied().unwrap_or(now);
                pod.idle_since = Some(since);
                idle.insert(pod.uid.clone(), since);
            }
        }
        if !idle.is_empty() {
            all.insert(key, idle);
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Silence {
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    #[error("the answer is no engine state: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the answer is longer than {MAX_ANSWER_BYTES} bytes")]
    TooLong,
}
