//! Teacher-forced log-probabilities, on each instruction set.

use regatta_runner::backend::cpu::Isa;
use serde_json::{Value, json};

use crate::process::{EngineProcess, MODEL};
use crate::reference::{self, Prompt};

/// Mean and 99th percentile of how far the chosen token's log-probability may be from the exact one, in nats, with
/// activations of eight bits.
const MAX_MEAN: f64 = 0.05;
const MAX_P99: f64 = 0.3;
/// Where the exact first and second are further apart, the first must be the same.
const CLEAR_GAP: f64 = 0.3;

#[tokio::test]
async fn log_probabilities_hold_the_tolerances_with_avx512vnni() {
    check("avx512vnni").await;
}

#[tokio::test]
async fn log_probabilities_hold_the_tolerances_with_avx2() {
    check("avx2").await;
}

#[tokio::test]
async fn log_probabilities_hold_the_tolerances_in_portable_code() {
    check("portable").await;
}

async fn check(isa: &str) {
    if Isa::available().iter().all(|available| available.name() != isa) {
        println!("skipped: this processor has no {isa}");
        return;
    }
    let engine = EngineProcess::start(
        &["--max-model-len", "512", "--num-gpu-blocks-override", "64"],
        &[("REGATTA_ISA", isa)],
    );
    let mut differences = Vec::new();
    for prompt in reference::prompts() {
        differences.extend(compare(&engine, &prompt).await);
    }
    differences.sort_by(f64::total_cmp);
    let (count, p99) = (differences.len(), differences[differences.len() * 99 / 100]);
    let mean = differences.iter().sum::<f64>() / count as f64;
    println!("{isa}: {count} positions, mean {mean:.4}, p99 {p99:.4}, max {:.4}", differences[count - 1]);
    assert!(count > 400, "only {count} positions could be compared");
    assert!(mean <= MAX_MEAN && p99 <= MAX_P99, "{isa}: mean {mean}, p99 {p99}");
}

/// Has the engine read prompt and output, checks what it thinks most likely, and gives the distance for each output
/// token that is among the exact top five.
async fn compare(engine: &EngineProcess, prompt: &Prompt) -> Vec<f64> {
    let token_ids = [&prompt.prompt_ids[..], &prompt.output_ids].concat();
    let request = json!({
        "model": MODEL,
        "prompt": token_ids,
        "max_tokens": 1,
        "echo": true,
        "logprobs": 1,
        "return_tokens_as_token_ids": true,
    });
    let answer = engine.ask("/v1/completions", &request).await;
    let logprobs = &answer["choices"][0]["logprobs"];
    let mut differences = Vec::new();
    for (output, exact) in prompt.fp32_top5.iter().enumerate() {
        let (index, place) =
            (prompt.prompt_ids.len() + output, format!("{} at output {output}", prompt.name));
        let chosen = prompt.output_ids[output];
        assert_eq!(logprobs["tokens"][index], format!("token_id:{chosen}"), "{place}");
        let found = logprobs["token_logprobs"][index].as_f64().unwrap();
        differences
            .extend(exact.iter().find(|(id, _)| *id == chosen).map(|(_, logprob)| (found - logprob).abs()));
        if exact[0].1 - exact[1].1 > CLEAR_GAP {
            assert_eq!(
                most_likely(&logprobs["top_logprobs"][index]),
                format!("token_id:{}", exact[0].0),
                "{place}"
            );
        }
    }
    differences
}

fn most_likely(top: &Value) -> &str {
    let alternatives = top.as_object().unwrap().iter();
    let best = alternatives.max_by(|a, b| a.1.as_f64().unwrap().total_cmp(&b.1.as_f64().unwrap()));
    best.unwrap().0
}
