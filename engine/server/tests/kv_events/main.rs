//! KV events as routers read them: by the Python packages `pyzmq` and `msgpack`, against the cache itself.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use regatta_core::kv::{KvGroup, KvGroups};
use regatta_core::plan::{StepOutput, StepPlan};
use regatta_core::runner::{ModelRunner, RunnerLimits};
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{NewSequence, Scheduler, SchedulerConfig};
use regatta_core::sequence::SequenceId;
use regatta_core::testing::{FakeRunner, Reply};
use regatta_engine::kv_events::{self, KvEventSender, KvEventsConfig};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const TOPIC: &str = "kv@pod@model";
const PATIENCE: Duration = Duration::from_secs(60);

/// A scheduler over a fake runner, whose cache changes are published.
struct World {
    scheduler: Scheduler,
    runner: FakeRunner,
    limits: RunnerLimits,
    sender: KvEventSender,
    num_sequences: u64,
}

impl World {
    fn new(sender: KvEventSender) -> Self {
        let window = KvGroup::SlidingWindow { window: 6 };
        let limits = RunnerLimits {
            block_size: 4,
            num_blocks: 40,
            kv_groups: KvGroups::new(&[KvGroup::Full, window]).unwrap(),
            num_host_blocks: 0,
            max_num_seqs: 4,
            max_num_batched_tokens: 32,
            max_in_flight: 1,
            feeds_sampled_tokens: false,
        };
        let config = SchedulerConfig { kv_events: true, ..SchedulerConfig::default() };
        Self {
            scheduler: Scheduler::new(config, limits),
            runner: FakeRunner::new(limits, Reply::Hash { vocab_size: 100 }),
            limits,
            sender,
            num_sequences: 0,
        }
    }

    fn run(&mut self, first: u32, len: u32, cache_salt: Option<&str>) {
        let id = SequenceId(self.num_sequences);
        self.num_sequences += 1;
        let sampling = Arc::new(SamplingParams { max_tokens: 5, ..SamplingParams::default() });
        let new = NewSequence::new(id, (first..first + len).collect(), sampling);
        let cache_salt = cache_salt.map(Arc::from);
        self.scheduler.add(NewSequence { cache_salt, ..new }).unwrap();
        let (mut plan, mut output) = (StepPlan::default(), StepOutput::default());
        while self.scheduler.schedule(&mut plan) {
            let ticket = self.runner.submit(&plan).unwrap();
            self.runner.collect(ticket, &mut output).unwrap();
            self.scheduler.settle(&plan, &mut output, &mut Vec::new());
            self.tell();
        }
    }

    fn tell(&mut self) {
        let mut events = Vec::new();
        self.scheduler.take_kv_events(&mut events);
        if !events.is_empty() {
            self.sender.send(&self.limits, events);
        }
    }

    /// Groups and hashes, as numbers, in order.
    fn cached(&self) -> Vec<(u64, u64)> {
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
        let content = self.scheduler.cached_content();
        let mut all: Vec<_> =
            content.map(|(hash, group)| (u64::from(group), number(&hash.0[24..]))).collect();
        all.sort_unstable();
        all
    }
}

/// The Python process.
struct Subscriber {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Subscriber {
    fn start(python: &str, config: &KvEventsConfig) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kv_events/subscriber.py");
        let endpoints = [config.endpoint, config.replay_endpoint.unwrap()].map(|at| format!("tcp://{at}"));
        let mut process = Command::new(python)
            .arg(script)
            .args(endpoints)
            .arg(TOPIC)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, input, output: BufReader::new(output) }
    }

    /// What it believes now.
    fn look(&mut self) -> Value {
        writeln!(self.input).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).expect("a page; else what the script says above")
    }

    /// Waits until it believes what is so.
    fn wait_for(&mut self, wanted: &[(u64, u64)]) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let page = self.look();
            let blocks = page["blocks"].as_array().unwrap().iter();
            let believed: Vec<(u64, u64)> = blocks
                .map(|block| (block["group"].as_u64().unwrap(), block["hash"].as_u64().unwrap()))
                .collect();
            if believed == wanted {
                return page;
            }
            assert!(Instant::now() < deadline, "{believed:?} is not {wanted:?}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn config() -> KvEventsConfig {
    let text = json!({
        "enable_kv_cache_events": true, "topic": TOPIC,
        "endpoint": format!("tcp://127.0.0.1:{}", free_port()),
        "replay_endpoint": format!("tcp://127.0.0.1:{}", free_port()),
    });
    KvEventsConfig::parse(&text.to_string()).unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_knows_what_is_cached_from_live_and_replayed_events() {
    let Ok(python) = std::env::var("REGATTA_PYTHON") else {
        println!("REGATTA_PYTHON is not set: no router listens");
        return;
    };
    let (config, tasks, stop) = (config(), TaskTracker::new(), CancellationToken::new());
    let mut world = World::new(kv_events::start(&config, &tasks, &stop).await.unwrap());
    // Nobody listens yet: these must be had from the replay.
    world.run(0, 21, None);
    world.run(0, 21, Some("tenant"));
    let compare = move || {
        let mut subscriber = Subscriber::start(&python, &config);
        let page = subscriber.wait_for(&world.cached());
        let salted = page["blocks"].as_array().unwrap().iter().filter(|block| !block["extra"].is_null());
        let salted: Vec<&Value> = salted.collect();
        assert!(salted.iter().all(|block| block["extra"] == json!(["tenant"]) && block["parent"].is_null()));
        assert!(!salted.is_empty());

        // More than fits, so that blocks are removed; some of it arrives live.
        let deadline = Instant::now() + PATIENCE;
        for first in (100..).step_by(50) {
            world.run(first, 30, None);
            if subscriber.wait_for(&world.cached())["num_live"].as_u64().unwrap() > 5 {
                break;
            }
            assert!(Instant::now() < deadline, "nothing comes live");
        }
        world.scheduler.reset_prefix_cache();
        world.tell();
        subscriber.wait_for(&[]);
        world.run(0, 21, None);
        let page = subscriber.wait_for(&world.cached());
        let root = page["blocks"].as_array().unwrap().iter().find(|block| block["parent"].is_null());
        assert_eq!(root.unwrap()["tokens"], json!([0, 1, 2, 3]));
    };
    tokio::task::spawn_blocking(compare).await.unwrap();
    stop.cancel();
    tasks.close();
    tokio::time::timeout(PATIENCE, tasks.wait()).await.expect("the publisher ends when told to");
}

#[tokio::test]
async fn an_address_in_use_is_refused_by_name() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = KvEventsConfig { endpoint: taken.local_addr().unwrap(), ..config() };
    let error = kv_events::start(&config, &TaskTracker::new(), &CancellationToken::new()).await.unwrap_err();
    assert!(error.to_string().contains("give another endpoint in --kv-events-config"), "{error}");
}
