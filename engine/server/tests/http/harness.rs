//! A server on free ports whose model repeats its prompt, one step at a time when the test wants that.

use std::{
    sync::{Arc, Condvar, Mutex, Once},
    time::{Duration, Instant},
};

use regatta_core::{
    kv::KvGroups,
    plan::{StepOutput, StepPlan},
    runner::{ModelRunner, RunnerLimits, StepError, Ticket},
    scheduler::SchedulerConfig,
    testing::{FakeRunner, Reply},
};
use regatta_engine::{
    args::{self, Command, ServeSettings},
    engine::{Engine, EngineConfig, EngineThread},
    http::{self, ServerState},
    model::ServedModel,
    openai::GenerationDefaults,
};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::vocabulary::{self, VOCAB_SIZE};

/// How long a condition may take to come.
const PATIENCE: Duration = Duration::from_secs(20);
const MAX_MODEL_LEN: u32 = 256;

/// A running server.
pub(crate) struct TestServer {
    pub(crate) url: String,
    pub(crate) internal_url: String,
    pub(crate) client: reqwest::Client,
    pub(crate) state: Arc<ServerState>,
    pub(crate) gate: Gate,
    max_queued_tokens: usize,
    thread: Option<EngineThread>,
    stop: CancellationToken,
}

/// Lets steps through: all of them, until it is closed.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<Allowed>, Condvar)>);

#[derive(Default)]
struct Allowed {
    closed: bool,
    steps: u64,
    failing: bool,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.0.0.lock().unwrap().closed = true;
    }

    pub(crate) fn open(&self) {
        self.0.0.lock().unwrap().closed = false;
        self.0.1.notify_all();
    }

    /// Lets this many steps through a closed gate.
    pub(crate) fn allow(&self, steps: u64) {
        self.0.0.lock().unwrap().steps += steps;
        self.0.1.notify_all();
    }

    /// Makes every further step fail, and lets all through.
    pub(crate) fn fail(&self) {
        self.0.0.lock().unwrap().failing = true;
        self.open();
    }

    fn pass(&self, step: u64) -> Result<(), StepError> {
        let guard = self.0.0.lock().unwrap();
        let mut allowed = self.0.1.wait_while(guard, |allowed| allowed.closed && allowed.steps == 0).unwrap();
        allowed.steps = allowed.steps.saturating_sub(1);
        if allowed.failing { Err(StepError { step, reason: "out of luck".to_owned() }) } else { Ok(()) }
    }
}

struct GatedRunner {
    inner: FakeRunner,
    gate: Gate,
}

impl ModelRunner for GatedRunner {
    fn limits(&self) -> RunnerLimits {
        self.inner.limits()
    }

    fn submit(&mut self, plan: &StepPlan) -> Result<Ticket, StepError> {
        self.gate.pass(plan.step)?;
        self.inner.submit(plan)
    }

    fn collect(&mut self, ticket: Ticket, output: &mut StepOutput) -> Result<(), StepError> {
        self.inner.collect(ticket, output)
    }
}

fn settings(flags: &[&str]) -> ServeSettings {
    let argv =
        ["regatta-engine", "serve", "m.gguf", "--served-model-name", "m", "alias", "--host", "127.0.0.1"];
    match args::parse(argv.iter().chain(flags)).expect("the flags are valid") {
        Command::Serve(settings) => *settings,
        other => panic!("not serve: {other:?}"),
    }
}

impl TestServer {
    /// A server that is ready.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// A server that is ready, with these flags.
    pub(crate) async fn start_with(flags: &[&str]) -> Self {
        let mut server = Self::start_unloaded(flags).await;
        server.load();
        server
    }

    /// A connection on which nothing has been sent.
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.url.strip_prefix("http://").unwrap()).await.unwrap()
    }

    /// A server whose model is not loaded yet.
    pub(crate) async fn start_unloaded(flags: &[&str]) -> Self {
        static TLS: Once = Once::new();
        TLS.call_once(|| rustls::crypto::ring::default_provider().install_default().expect("the first one"));
        let settings = settings(flags);
        let state = Arc::new(ServerState::new(&settings));
        let stop = CancellationToken::new();
        let free_port = "127.0.0.1:0".parse().unwrap();
        let listener = http::bind(free_port, "--port").await.unwrap();
        let internal = http::bind(free_port, "--port").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let internal_url = format!("http://{}", internal.local_addr().unwrap());
        tokio::spawn(http::serve(listener, http::router(&state, &settings.api_keys), stop.clone()));
        tokio::spawn(http::serve(internal, http::internal_router(&state), stop.clone()));
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        let max_queued_tokens = settings.max_num_queued_tokens as usize;
        let gate = Gate::default();
        Self { url, internal_url, client, state, gate, max_queued_tokens, thread: None, stop }
    }

    /// Puts the model in.
    pub(crate) fn load(&mut self) {
        let limits = RunnerLimits {
            block_size: 4,
            num_blocks: 256,
            kv_groups: KvGroups::FULL,
            num_host_blocks: 0,
            max_num_seqs: 4,
            max_num_batched_tokens: 64,
            max_in_flight: 1,
            feeds_sampled_tokens: false,
        };
        let runner = GatedRunner { inner: FakeRunner::new(limits, Reply::Echo), gate: self.gate.clone() };
        let scheduler = SchedulerConfig { max_model_len: MAX_MODEL_LEN, ..SchedulerConfig::default() };
        let max_queued_tokens = self.max_queued_tokens;
        let config = EngineConfig { scheduler, max_queued_tokens, ..EngineConfig::default() };
        let (engine, thread) = Engine::spawn(Box::new(runner), config).unwrap();
        self.thread = Some(thread);
        self.state.serve_model(ServedModel {
            engine,
            text: vocabulary::model_text(),
            vocab_size: VOCAB_SIZE,
            root: "m.gguf".to_owned(),
            defaults: GenerationDefaults::default(),
            isa: "none".to_owned(),
        });
    }

    /// Ends the engine thread, as a defect would.
    pub(crate) fn kill_engine(&mut self) {
        self.thread.take().expect("a loaded server").shutdown(Instant::now());
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let response = self.client.post(format!("{}{path}", self.url)).json(&body).send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap())
    }

    /// A request that is expected to succeed.
    pub(crate) async fn ask(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.post(path, body).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let response = self.client.get(format!("{}{path}", self.url)).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// `GET /internal/state`.
    pub(crate) async fn internal_state(&self) -> Value {
        let url = format!("{}/internal/state", self.internal_url);
        self.client.get(url).send().await.unwrap().json().await.unwrap()
    }

    /// Waits until the state page meets a condition, and returns it.
    pub(crate) async fn wait_for(&self, condition: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let page = self.internal_state().await;
            if condition(&page) {
                return page;
            }
            assert!(Instant::now() < deadline, "the condition did not come: {page}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// A streamed answer's events; the last must be `[DONE]`, which is left out.
    pub(crate) async fn stream(&self, path: &str, body: Value) -> Vec<Value> {
        let response = self.client.post(format!("{}{path}", self.url)).json(&body).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
        assert_eq!(content_type, "text/event-stream; charset=utf-8");
        events(&response.text().await.unwrap())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.gate.open();
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.shutdown(Instant::now());
        }
    }
}

/// Reads a whole stream strictly: `data: <json>` and an empty line for each event, `[DONE]` last.
pub(crate) fn events(text: &str) -> Vec<Value> {
    let frames = text.strip_suffix("\n\n").expect("a stream ends with an empty line").split("\n\n");
    let mut data: Vec<&str> =
        frames.map(|frame| frame.strip_prefix("data: ").expect("a data frame")).collect();
    assert_eq!(data.pop(), Some("[DONE]"));
    data.into_iter().map(|json| serde_json::from_str(json).unwrap()).collect()
}
