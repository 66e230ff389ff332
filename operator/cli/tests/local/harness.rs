//! A running `regatta local` and a client of it.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use serde_json::Value;

/// How long a condition may take to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A small model that lies in the repository.
pub(crate) fn tiny_model() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../engine/runner/tests/data/tiny-llama");
    folder.canonicalize().expect("the tiny model")
}

/// A manifest of one service; `spec` is what follows the model.
pub(crate) fn service(name: &str, model: &Path, spec: &str) -> String {
    format!(
        "apiVersion: regatta.dev/v1alpha1\nkind: LLMService\nmetadata: {{name: {name}}}\n\
         spec: {{model: {{uri: 'file://{}'}}{spec}}}\n",
        model.display()
    )
}

/// A running `regatta local`; killed when dropped, and its engines with it.
pub(crate) struct Local {
    child: Child,
    lines: Option<Receiver<String>>,
    seen: Vec<String>,
    pub(crate) client: reqwest::Client,
    pub(crate) url: String,
    pub(crate) metrics: String,
    _folder: tempfile::TempDir,
}

impl Local {
    /// Starts it and waits until it says that it is ready.
    pub(crate) fn ready(manifest: &str) -> Self {
        let mut local = Self::start(manifest);
        let line = local.wait_for("ready: ");
        let mut addresses = line.split([' ', ';']).filter(|word| word.starts_with("http://"));
        local.url = addresses.next().expect("an address").to_owned();
        local.metrics = addresses.next().expect("where metrics are").to_owned();
        local
    }

    pub(crate) fn start(manifest: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("service.yaml");
        std::fs::write(&file, manifest).expect("written");
        let engine = Path::new(env!("CARGO_BIN_EXE_regatta")).with_file_name("regatta-engine");
        assert!(engine.is_file(), "{} is missing: cargo build --bin regatta-engine", engine.display());
        let mut child = Command::new(env!("CARGO_BIN_EXE_regatta"))
            .args(["local", "--port", "0", "--metrics-port", "0", "-f"])
            .arg(&file)
            .arg("--engine")
            .arg(engine)
            .env_remove("REGATTA_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = Some(read(child.stderr.take().expect("piped")));
        // The first caller installs it for the process.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().expect("a client");
        Self {
            child,
            lines,
            seen: Vec::new(),
            client,
            url: String::new(),
            metrics: String::new(),
            _folder: folder,
        }
    }

    /// Waits for a line with `text`.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let lines = self.lines.as_ref().expect("the terminal is open");
        let deadline = Instant::now() + PATIENCE;
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("no line with '{text}' in {:#?}", self.seen),
                Err(RecvTimeoutError::Disconnected) => panic!("ended without '{text}': {:#?}", self.seen),
            }
        }
    }

    /// Nobody reads what it writes any more, as after the end of a terminal.
    pub(crate) fn close_terminal(&mut self) {
        self.lines = None;
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Process ids of its engines.
    pub(crate) fn engines(&self) -> Vec<u32> {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let text = std::fs::read_to_string(children).expect("it lives");
        text.split_whitespace().map(|pid| pid.parse().expect("a process id")).collect()
    }

    /// Waits for its end; gives the lines that came until then.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let status = within("the end", || self.child.try_wait().expect("a child of ours"));
        let rest = self.lines.iter().flatten();
        let text = self.seen.iter().cloned().chain(rest).collect::<Vec<_>>().join("\n");
        (status, text)
    }

    /// Begins a streamed completion of the tiny model that takes a while.
    pub(crate) async fn begin_long_stream(&self, model: &str) -> reqwest::Response {
        let request = serde_json::json!({
            "model": model, "prompt": [7], "n": 128, "max_tokens": 2000, "ignore_eos": true, "stream": true,
        });
        let answer = self.client.post(format!("{}/completions", self.url)).json(&request).send().await;
        let mut answer = answer.expect("an answer");
        assert_eq!(answer.status(), 200);
        answer.chunk().await.expect("a stream").expect("a first event");
        answer
    }

    pub(crate) async fn models(&self) -> Value {
        let answer = self.client.get(format!("{}/models", self.url)).send().await.expect("an answer");
        answer.json().await.expect("json")
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has noticed then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The pipe closes with the receiver.
fn read(pipe: ChildStderr) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

pub(crate) fn signal(pid: u32, name: &str) {
    let killed = Command::new("kill").args(["-s", name, &pid.to_string()]).status().expect("kill runs");
    assert!(killed.success());
}

/// Whether the process is there and no zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits until `condition` gives something.
pub(crate) fn within<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
