//! Every pair of features at once, on a tiny model: each request gets the bits that it gets alone from an engine with
//! neither. The page of combinations is written from the list of features below.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use futures::future::join_all;
use serde_json::{Value, json};

use crate::engine::Engine;

/// Requests that run at once.
const NUM_REQUESTS: u32 = 12;
/// Too few blocks for two requests that generate all their tokens.
const SCARCE_BLOCKS: &str = "30";
const PAGE: &str = "../../docs/src/reference/combinations.md";

/// Something that can be combined with every other.
struct Feature {
    name: &'static str,
    /// What it adds to each request.
    fields: fn() -> Value,
    /// What it changes in the engine's command line.
    flags: &'static [(&'static str, &'static str)],
    /// Parts of the line of a counter that shows that it took place.
    evidence: Option<&'static [&'static str]>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    /// Each request stops at a piece of the answer that it would get otherwise.
    StopString,
    /// The second layer attends within a window.
    Window,
    /// Later requests come before earlier ones.
    Priority,
}

const NONE: Feature =
    Feature { name: "", fields: || json!({}), flags: &[], evidence: None, kind: Kind::Plain };

const FEATURES: &[Feature] = &[
    Feature { name: "n", fields: || json!({"n": 2}), ..NONE },
    Feature {
        name: "beam search",
        fields: || json!({"use_beam_search": true, "n": 2, "temperature": 0, "seed": null, "max_tokens": 30}),
        ..NONE
    },
    Feature { name: "logprobs", fields: || json!({"logprobs": 2}), ..NONE },
    Feature { name: "stop strings", kind: Kind::StopString, ..NONE },
    Feature {
        name: "penalties",
        fields: || json!({"frequency_penalty": 0.7, "presence_penalty": 0.2, "repetition_penalty": 1.3}),
        ..NONE
    },
    Feature { name: "priority", flags: &[("--scheduling-policy", "priority")], kind: Kind::Priority, ..NONE },
    Feature {
        name: "prefix cache",
        flags: &[("--enable-prefix-caching", "")],
        evidence: Some(&["vllm:prefix_cache_hits_total"]),
        ..NONE
    },
    Feature { name: "chunked prefill", flags: &[("--max-num-batched-tokens", "9")], ..NONE },
    Feature {
        name: "preemption by recompute",
        flags: &[("--num-gpu-blocks-override", SCARCE_BLOCKS), ("--preemption-mode", "recompute")],
        evidence: Some(&["vllm:num_preemptions_total", "mode=\"recompute\""]),
        ..NONE
    },
    Feature {
        name: "preemption by swap",
        flags: &[
            ("--num-gpu-blocks-override", SCARCE_BLOCKS),
            ("--preemption-mode", "swap"),
            ("--swap-space", "1"),
        ],
        evidence: Some(&["vllm:num_preemptions_total", "mode=\"swap\""]),
        ..NONE
    },
    Feature { name: "sliding window", kind: Kind::Window, ..NONE },
];

/// Tries to make what is tested happen.
const MAX_ROUNDS: u32 = 20;

/// Pairs that have no meaning together, which the engine answers with 400.
const REFUSED: &[[&str; 2]] = &[["beam search", "stop strings"], ["beam search", "penalties"]];
/// Pairs of settings of an engine, of which it has one.
const EXCLUSIVE: [&str; 2] = ["preemption by recompute", "preemption by swap"];

fn is_refused(first: &Feature, second: &Feature) -> bool {
    REFUSED.contains(&[first.name, second.name]) || REFUSED.contains(&[second.name, first.name])
}

fn is_exclusive(first: &Feature, second: &Feature) -> bool {
    EXCLUSIVE.contains(&first.name) && EXCLUSIVE.contains(&second.name) && first.name != second.name
}

/// Flags of an engine that does nothing special.
const FLAGS: &[(&str, &str)] = &[
    ("--block-size", "4"),
    ("--max-model-len", "96"),
    ("--max-num-seqs", "16"),
    ("--max-num-batched-tokens", "128"),
    ("--num-gpu-blocks-override", "1024"),
    ("--threads", "2"),
];

/// Tiny models with and without a window; the folder lives as long as this.
struct Models {
    plain: PathBuf,
    window: tempfile::TempDir,
}

impl Models {
    fn new() -> Self {
        let plain = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runner/tests/data/tiny-mistral");
        let window = tempfile::tempdir().unwrap();
        for file in ["model.safetensors", "tokenizer.json"] {
            std::fs::copy(plain.join(file), window.path().join(file)).unwrap();
        }
        let mut config: Value =
            serde_json::from_slice(&std::fs::read(plain.join("config.json")).unwrap()).unwrap();
        config["sliding_window"] = json!(10);
        config["layer_types"] = json!(["full_attention", "sliding_attention"]);
        std::fs::write(window.path().join("config.json"), config.to_string()).unwrap();
        Self { plain, window }
    }

    async fn start(&self, window: bool, changed: &[(&str, &str)]) -> Engine {
        let mut flags: BTreeMap<&str, &str> = FLAGS.iter().copied().collect();
        flags.extend(changed.iter().copied());
        if !flags.contains_key("--enable-prefix-caching") {
            flags.insert("--no-enable-prefix-caching", "");
        }
        let flags: Vec<&str> = flags
            .into_iter()
            .flat_map(|(flag, value)| [flag, value])
            .filter(|word| !word.is_empty())
            .collect();
        let engine = Engine::start_model(if window { self.window.path() } else { &self.plain }, &flags);
        engine.wait_for_readyz(200).await;
        engine
    }
}

/// Prompts have a beginning in common.
fn request(index: u32) -> Value {
    let own = (0..10 + index).map(|k| (index * 31 + k * 7) % 250);
    let prompt: Vec<u32> = (0..24).map(|k| k * 5 % 250).chain(own).collect();
    json!({
        "model": "tiny", "prompt": prompt, "temperature": 0.9, "seed": index, "max_tokens": 40 + index,
        "ignore_eos": true,
    })
}

fn with(mut request: Value, fields: Value) -> Value {
    let Value::Object(fields) = fields else { unreachable!("fields are an object") };
    request.as_object_mut().unwrap().extend(fields);
    request
}

/// What the client gets, without times and names.
async fn ask(engine: &Engine, request: &Value) -> Value {
    let url = format!("{}/v1/completions", engine.url);
    let mut answer: Value = engine.client.post(url).json(request).send().await.unwrap().json().await.unwrap();
    assert!(answer["choices"][0]["text"].is_string(), "{answer}");
    answer["choices"].take()
}

/// An engine that answers one request at a time, and what it has answered.
struct Alone {
    engine: Engine,
    answers: HashMap<String, Value>,
}

impl Alone {
    /// This engine has no priorities: alone there is nobody to come before.
    async fn ask(&mut self, request: &Value) -> Value {
        let mut request = request.clone();
        request.as_object_mut().unwrap().remove("priority");
        let key = request.to_string();
        if !self.answers.contains_key(&key) {
            let answer = ask(&self.engine, &request).await;
            self.answers.insert(key.clone(), answer);
        }
        self.answers[&key].clone()
    }
}

/// The requests of a combination, with stop strings taken from the answers that they would get otherwise.
async fn requests(features: &[&Feature], alone: &mut Alone) -> Vec<Value> {
    let mut requests = Vec::new();
    for index in 0..NUM_REQUESTS {
        let mut one = request(index);
        for feature in features {
            one = with(one, (feature.fields)());
        }
        if features.iter().any(|feature| feature.kind == Kind::Priority) {
            one = with(one, json!({"priority": NUM_REQUESTS - index}));
        }
        if features.iter().any(|feature| feature.kind == Kind::StopString) {
            let text: Vec<char> = alone.ask(&one).await[0]["text"].as_str().unwrap().chars().collect();
            let start = text.len() * 3 / 4;
            let stop: String = text[start..(start + 2).min(text.len())].iter().collect();
            one = with(one, json!({"stop": [stop]}));
        }
        requests.push(one);
    }
    requests
}

async fn counter(engine: &Engine, parts: &[&str]) -> f64 {
    let page =
        engine.client.get(format!("{}/metrics", engine.url)).send().await.unwrap().text().await.unwrap();
    let is_wanted = |line: &&str| !line.starts_with('#') && parts.iter().all(|part| line.contains(part));
    let line = page.lines().find(is_wanted).unwrap_or_else(|| panic!("no {parts:?}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

async fn check(features: &[&Feature], models: &Models, alone: &mut Alone) {
    let names: Vec<&str> = features.iter().map(|feature| feature.name).collect();
    let mut flags: Vec<_> = features.iter().flat_map(|feature| feature.flags.iter().copied()).collect();
    let window = features.iter().any(|feature| feature.kind == Kind::Window);
    if window {
        // The second group of layers has blocks of its own.
        flags.iter_mut().filter(|flag| flag.1 == SCARCE_BLOCKS).for_each(|flag| flag.1 = "52");
    }
    let requests = requests(features, alone).await;
    let engine = models.start(window, &flags).await;
    let mut missing = Vec::new();
    // How far requests overlap is the machine's choice, and a pool that is scarce for all may do for fewer at once.
    for _ in 0..MAX_ROUNDS {
        let together = join_all(requests.iter().map(|request| ask(&engine, request))).await;
        for (request, answer) in requests.iter().zip(together) {
            assert_eq!(answer, alone.ask(request).await, "{names:?}: {request}");
        }
        missing.clear();
        for evidence in features.iter().filter_map(|feature| feature.evidence) {
            if counter(&engine, evidence).await == 0.0 {
                missing.push(evidence);
            }
        }
        if missing.is_empty() {
            return;
        }
    }
    panic!("{names:?}: {missing:?} stayed 0");
}

/// Both at once are an error of the client, not something that is left out.
async fn check_refusal(features: &[&Feature], alone: &Alone) {
    let mut one = request(0);
    for feature in features {
        let stop = if feature.kind == Kind::StopString { json!({"stop": ["a"]}) } else { json!({}) };
        one = with(with(one, (feature.fields)()), stop);
    }
    let url = format!("{}/v1/completions", alone.engine.url);
    let status = alone.engine.client.post(url).json(&one).send().await.unwrap().status();
    assert_eq!(status.as_u16(), 400, "{one}");
}

#[tokio::test]
async fn every_pair_of_features_gives_the_bits_of_a_request_alone() {
    let models = Models::new();
    let (plain, windowed) = (models.start(false, &[]).await, models.start(true, &[]).await);
    let [mut plain, mut windowed] = [plain, windowed].map(|engine| Alone { engine, answers: HashMap::new() });
    for (index, first) in FEATURES.iter().enumerate() {
        for second in &FEATURES[index..] {
            let pair = if first.name == second.name { vec![first] } else { vec![first, second] };
            let window = pair.iter().any(|feature| feature.kind == Kind::Window);
            if is_exclusive(first, second) {
                continue;
            }
            if is_refused(first, second) {
                check_refusal(&pair, &plain).await;
                continue;
            }
            check(&pair, &models, if window { &mut windowed } else { &mut plain }).await;
        }
    }
}

/// The matrix of the list above: `same` where the test runs the pair.
fn matrix() -> String {
    let names: Vec<&str> = FEATURES.iter().map(|feature| feature.name).collect();
    let mut rows =
        vec![format!("| | {} |", names.join(" | ")), format!("| --- {}|", "| --- ".repeat(names.len()))];
    for first in FEATURES {
        let cell = |second: &Feature| {
            if is_refused(first, second) {
                "refused"
            } else if is_exclusive(first, second) {
                "one of both"
            } else {
                "same"
            }
        };
        let cells: Vec<&str> = FEATURES.iter().map(cell).collect();
        rows.push(format!("| **{}** | {} |", first.name, cells.join(" | ")));
    }
    rows.join("\n")
}

#[test]
fn the_page_of_combinations_says_which_pairs_are_tested() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let text = std::fs::read_to_string(&page).expect("the page is there");
    let written: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    let wanted = matrix();
    if std::env::var_os("REGATTA_WRITE_DOCS").is_some() {
        std::fs::write(&page, text.replace(&written.join("\n"), &wanted)).unwrap();
        return;
    }
    assert_eq!(written.join("\n"), wanted, "REGATTA_WRITE_DOCS=1 with this test writes it");
}
