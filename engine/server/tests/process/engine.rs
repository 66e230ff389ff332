//! `regatta-engine serve` with a tiny model.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// How long a condition may take to come.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn model() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../runner/tests/data/tiny-llama")
}

/// The command line of `serve` on a free port of the loopback interface.
pub(crate) fn serve(flags: &[&str]) -> Command {
    serve_model(&model(), flags)
}

fn serve_model(model: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_regatta-engine"));
    command.arg("serve").arg(model).args([
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--served-model-name",
        "tiny",
    ]);
    command
        .args(flags)
        .env_remove("REGATTA_LOG")
        .env_remove("VLLM_API_KEY")
        .env_remove("REGATTA_ACCELERATOR");
    command
}

/// A running engine; killed when dropped.
pub(crate) struct Engine {
    child: Child,
    pub(crate) url: String,
    pub(crate) client: reqwest::Client,
}

impl Engine {
    /// Starts it and waits until it serves.
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::start_model(&model(), flags)
    }

    /// The same with another model.
    pub(crate) fn start_model(model: &Path, flags: &[&str]) -> Self {
        let mut child = serve_model(model, flags).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address =
            log.find_map(|line| Some(line.split_once("address=")?.1.to_owned())).expect("it serves");
        // Whoever stops reading a pipe stops the writer, sooner or later.
        std::thread::spawn(move || log.for_each(|line| eprintln!("{line}")));
        // The first caller installs it for the process.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Self { child, url: format!("http://{}", address.trim()), client }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Starts a streamed completion that takes a while, and returns once it has begun.
    pub(crate) async fn begin_long_stream(&self, n: u32) -> reqwest::Response {
        let request = serde_json::json!({
            "model": "tiny", "prompt": [7], "n": n, "max_tokens": 2000, "ignore_eos": true, "stream": true,
        });
        let mut response =
            self.client.post(format!("{}/v1/completions", self.url)).json(&request).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        response.chunk().await.unwrap().expect("a first event");
        response
    }

    /// Waits until `/readyz` answers with this status.
    pub(crate) async fn wait_for_readyz(&self, status: u16) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.client.get(format!("{}/readyz", self.url)).send().await.unwrap();
            if answer.status().as_u16() == status {
                return;
            }
            assert!(Instant::now() < deadline, "/readyz did not become {status}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for the process to end.
    pub(crate) async fn wait_for_end(mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the process did not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has noticed then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
