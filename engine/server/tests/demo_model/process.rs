//! The program as a process of its own, on a free port.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::reference;

/// Name under which the model is served.
pub(crate) const MODEL: &str = "smollm2";

/// Longest that one answer may take, on a busy machine and without vector instructions.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(240);

/// A running engine; killed when dropped.
pub(crate) struct EngineProcess {
    child: Child,
    client: reqwest::Client,
    url: String,
}

impl EngineProcess {
    /// Starts `serve` with further arguments and environment, and waits until it says where it serves.
    pub(crate) fn start(args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_regatta-engine"));
        command.arg("serve").arg(reference::model_path());
        command.args(["--host", "127.0.0.1", "--port", "0", "--served-model-name", MODEL]).args(args);
        command.envs(env.iter().copied()).env("NO_COLOR", "1").env_remove("REGATTA_LOG");
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut seen = String::new();
        let address = log.by_ref().find_map(|line| {
            let address =
                line.split("address=").nth(1).map(|rest| rest.split_whitespace().next().unwrap().to_owned());
            seen.push_str(&line);
            seen.push('\n');
            address
        });
        let Some(address) = address else { panic!("the engine did not start:\n{seen}") };
        // Whoever stops reading a pipe stops the writer, sooner or later.
        std::thread::spawn(move || log.for_each(|line| eprintln!("{line}")));
        // The first caller installs it for the process.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(ANSWER_TIMEOUT).build().unwrap();
        let engine = Self { child, client, url: format!("http://{address}") };
        assert!(seen.contains("serving"), "{seen}");
        engine
    }

    /// Posts a request and gives the answer, which must be a success.
    pub(crate) async fn ask(&self, path: &str, request: &Value) -> Value {
        let text = self.post(path, request).await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Posts a request for a stream and gives its events without the closing `[DONE]`.
    pub(crate) async fn stream(&self, path: &str, request: &Value) -> Vec<Value> {
        let text = self.post(path, request).await;
        let mut events: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(events.pop(), Some("[DONE]"));
        events.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }

    /// The value of a metric that has one sample.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let page =
            self.client.get(format!("{}/metrics", self.url)).send().await.unwrap().text().await.unwrap();
        let mut samples = page.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        let sample = samples.next().unwrap_or_else(|| panic!("no {name} in {page}"));
        sample.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Waits until nothing runs and every KV block is free; an answer may leave a moment before its blocks do.
    pub(crate) async fn wait_until_idle(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let running = self.metric("vllm:num_requests_running").await;
            let usage = self.metric("vllm:kv_cache_usage_perc").await;
            if running == 0.0 && usage == 0.0 {
                return;
            }
            assert!(Instant::now() < deadline, "{running} requests run, {usage} of the KV cache is in use");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn post(&self, path: &str, request: &Value) -> String {
        let response = self.client.post(format!("{}{path}", self.url)).json(request).send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert!(status.is_success(), "{status}: {text}");
        text
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has noticed then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
