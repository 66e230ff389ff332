//! Plays requests through a runner: prompts teacher-forced or continued, in any company and any chunks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use regatta_core::plan::{
    Admission, BlockId, KnownTokens, PositionLogprobs, Row, SequenceOutput, SequencePlan, StepOutput,
    StepPlan,
};
use regatta_core::runner::{ModelRunner, RunnerLimits};
use regatta_core::sampling::SamplingParams;

/// A folder or file of this crate's test data.
pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// `tiny-mistral` with a window in its layers of the type `sliding_attention`.
pub(crate) fn windowed(window: u32, layer_types: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["model.safetensors", "tokenizer.json"] {
        std::fs::copy(data("tiny-mistral").join(file), folder.path().join(file)).unwrap();
    }
    let config = std::fs::read(data("tiny-mistral/config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    config["sliding_window"] = window.into();
    config["layer_types"] = layer_types.into();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    folder
}

/// The demo model.
pub(crate) fn demo_model() -> PathBuf {
    let default =
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let path = std::env::var_os("REGATTA_MODEL").map_or_else(default, PathBuf::from);
    assert!(path.exists(), "{} is missing; `make model` fetches it", path.display());
    path
}

/// A prompt and how it goes on.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) prompt: Vec<u32>,
    pub(crate) sampling: SamplingParams,
}

/// All that a request got.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Transcript {
    pub(crate) token_ids: Vec<u32>,
    pub(crate) logprobs: Vec<PositionLogprobs>,
    pub(crate) prompt_logprobs: Vec<PositionLogprobs>,
}

/// SplitMix64 (Steele, Lea and Flood, 2014): schedules that a seed reproduces.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }
}

struct Playing {
    request: Request,
    tokens: Vec<u32>,
    num_computed: usize,
    /// By group of layers; absent where no later token sees a block.
    tables: Vec<Vec<Option<u32>>>,
    transcript: Transcript,
}

impl Playing {
    fn is_done(&self) -> bool {
        self.transcript.token_ids.len() >= self.request.sampling.max_tokens as usize
    }
}

/// What a sequence does in a step.
enum Move {
    Wait,
    /// Computes at most so many tokens.
    Compute(usize),
    /// Gives its blocks back and starts again from its first token.
    Preempt,
}

/// Plays every request alone, each prompt in one chunk.
pub(crate) fn play_alone(runner: &mut dyn ModelRunner, requests: &[Request]) -> Vec<Transcript> {
    let whole = |_| Move::Compute(usize::MAX);
    requests
        .iter()
        .map(|request| play(runner, std::slice::from_ref(request), whole, None).remove(0))
        .collect()
}

/// Plays all requests at once: each step takes a random share of those that are not done, each with a random chunk,
/// over blocks in random order, and now and then one is preempted.
pub(crate) fn play_together(
    runner: &mut dyn ModelRunner,
    requests: &[Request],
    dice: &mut Dice,
) -> Vec<Transcript> {
    let blocks = dice.roll(usize::MAX) as u64;
    let choose = |pending: usize| match dice.roll(24) {
        0 => Move::Preempt,
        1..=5 => Move::Wait,
        6..=11 => Move::Compute(1 + dice.roll(pending)),
        12..=17 => Move::Compute(1 + dice.roll(16)),
        _ => Move::Compute(pending),
    };
    play(runner, requests, choose, Some(blocks))
}

fn play(
    runner: &mut dyn ModelRunner,
    requests: &[Request],
    mut choose: impl FnMut(usize) -> Move,
    shuffle: Option<u64>,
) -> Vec<Transcript> {
    let limits = runner.limits();
    let mut free: Vec<u32> = (0..limits.num_blocks).collect();
    if let Some(seed) = shuffle {
        let mut dice = Dice(seed);
        (1..free.len()).for_each(|i| free.swap(i, dice.roll(i + 1)));
    }
    let num_groups = limits.kv_groups.as_slice().len();
    let mut playing: Vec<Playing> = requests.iter().cloned().map(|one| start(one, num_groups)).collect();
    let mut plan = StepPlan::default();
    let mut output = StepOutput::default();
    plan.admitted.extend((0..).zip(&playing).map(admission));
    while playing.iter().any(|one| !one.is_done()) {
        plan.step += 1;
        let mut budget = limits.max_num_batched_tokens as usize;
        for (row, one) in (0..).zip(&mut playing).filter(|(_, one)| !one.is_done()) {
            let pending = one.tokens.len() - one.num_computed;
            match choose(pending) {
                Move::Compute(most) if budget > 0 => {
                    let num_tokens = most.min(pending).min(budget);
                    budget -= num_tokens;
                    plan_sequence(&mut plan, row, one, num_tokens, limits.block_size, &mut free);
                }
                Move::Preempt => {
                    free.extend(one.tables.iter_mut().flat_map(|table| table.drain(..)).flatten());
                    one.num_computed = 0;
                    one.transcript.prompt_logprobs.clear();
                    // In the first step it is being admitted anyway.
                    if plan.step > 1 {
                        plan.released.push(Row(row));
                        plan.admitted.push(admission((row, one)));
                    }
                }
                _ => {}
            }
        }
        let ticket = runner.submit(&plan).expect("a valid plan runs");
        runner.collect(ticket, &mut output).expect("a submitted step is collected");
        for (planned, output) in plan.sequences.iter().zip(&output.sequences) {
            settle(&mut playing[planned.row.0 as usize], output);
        }
        playing.iter_mut().for_each(|one| drop_unseen(one, limits, &mut free));
        plan.clear();
    }
    plan.step += 1;
    plan.released.extend((0..playing.len() as u32).map(Row));
    let ticket = runner.submit(&plan).expect("rows can be released");
    runner.collect(ticket, &mut output).expect("a submitted step is collected");
    playing.into_iter().map(|one| one.transcript).collect()
}

fn start(request: Request, num_groups: usize) -> Playing {
    let tokens = request.prompt.clone();
    Playing {
        request,
        tokens,
        num_computed: 0,
        tables: vec![Vec::new(); num_groups],
        transcript: Transcript::default(),
    }
}

fn admission((row, one): (u32, &Playing)) -> Admission {
    Admission {
        row: Row(row),
        sampling: Arc::new(one.request.sampling.clone()),
        num_prompt_tokens: one.request.prompt.len() as u32,
        known_tokens: one.request.sampling.looks_back().then(|| known_tokens(one)),
    }
}

fn known_tokens(one: &Playing) -> KnownTokens {
    let generated = one.tokens[one.request.prompt.len()..].to_vec();
    KnownTokens { prompt: one.request.prompt.clone().into(), generated }
}

fn plan_sequence(
    plan: &mut StepPlan,
    row: u32,
    one: &mut Playing,
    num_tokens: usize,
    block_size: u32,
    free: &mut Vec<u32>,
) {
    let end = one.num_computed + num_tokens;
    let num_new_blocks = end.div_ceil(block_size as usize) - one.tables[0].len();
    for table in &mut one.tables {
        let new_blocks = free.split_off(free.len() - num_new_blocks);
        plan.new_blocks.extend(new_blocks.iter().copied().map(BlockId));
        table.extend(new_blocks.into_iter().map(Some));
    }
    let num_new_blocks = num_new_blocks * one.tables.len();
    plan.token_ids.extend(&one.tokens[one.num_computed..end]);
    plan.sequences.push(SequencePlan {
        row: Row(row),
        position: one.num_computed as u32,
        num_tokens: num_tokens as u32,
        num_placeholders: 0,
        num_new_blocks: num_new_blocks as u32,
        samples: end == one.tokens.len(),
        next_prompt_token: one.request.prompt.get(end).copied(),
    });
    one.num_computed = end;
}

/// Lets others have the blocks that no later token sees.
fn drop_unseen(one: &mut Playing, limits: RunnerLimits, free: &mut Vec<u32>) {
    for (group, table) in limits.kv_groups.as_slice().iter().zip(&mut one.tables) {
        let first_seen = group.first_seen(one.num_computed as u32) / limits.block_size;
        free.extend(table.iter_mut().take(first_seen as usize).filter_map(Option::take));
    }
}

fn settle(one: &mut Playing, output: &SequenceOutput) {
    one.tokens.extend(&output.token_ids);
    one.transcript.token_ids.extend(&output.token_ids);
    one.transcript.logprobs.extend(output.logprobs.iter().cloned());
    one.transcript.prompt_logprobs.extend(output.prompt_logprobs.iter().cloned());
}

/// A request that continues greedily and reports log-probabilities, also of its prompt.
pub(crate) fn greedy(prompt: Vec<u32>, max_tokens: u32, num_top: u32) -> Request {
    let sampling = SamplingParams {
        temperature: 0.0,
        max_tokens,
        logprobs: Some(num_top),
        prompt_logprobs: Some(num_top),
        ..Default::default()
    };
    Request { prompt, sampling }
}

/// Requests of lengths `1..=max_len`, greedy and drawn, with and without log-probabilities.
pub(crate) fn mixed(
    count: usize,
    max_len: usize,
    vocab: usize,
    max_tokens: usize,
    dice: &mut Dice,
) -> Vec<Request> {
    let one = |index: usize| {
        let prompt = (0..1 + dice.roll(max_len)).map(|_| dice.roll(vocab) as u32).collect();
        let mut request = greedy(prompt, 1 + dice.roll(max_tokens) as u32, dice.roll(6) as u32);
        request.sampling.seed = index as u64;
        request.sampling.temperature = [0.0, 0.8, 1.3][dice.roll(3)];
        request.sampling.top_k = [0, 5, 40][dice.roll(3)];
        request.sampling.top_p = [1.0, 0.9][dice.roll(2)];
        request.sampling.typical_p = [1.0, 0.8][dice.roll(2)];
        request.sampling.frequency_penalty = [0.0, 0.5][dice.roll(2)];
        request.sampling.repetition_penalty = [1.0, 1.2][dice.roll(2)];
        if dice.roll(2) == 0 {
            request.sampling.prompt_logprobs = None;
        }
        if dice.roll(3) == 0 {
            request.sampling.logprobs = None;
        }
        request
    };
    (0..count).map(one).collect()
}
