//! What is said about a record, for people and for programs.

use std::collections::BTreeMap;
use std::io::{self, Write};

use regatta_core::replay::{Header, ReplayedStep, Share};
use regatta_core::scheduler::{Decision, Preemption, SchedulerStats, WaitReason};
use regatta_core::sequence::SequenceId;
use serde::Serialize;

use super::{Format, ReplaySettings, end::End, history::History};

/// Names shown of a long list.
const MAX_SHOWN: usize = 12;

/// All that can be asked about a record.
pub(super) struct Report {
    pub(super) summary: Summary,
    pub(super) step: Option<ReplayedStep>,
    pub(super) history: Option<History>,
}

/// Figures of the whole record. Every plan in it has been planned again and was the same.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    engine: String,
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    block_size: u32,
    num_blocks: u32,
    /// Whether the recording ended as it should.
    pub(super) complete: bool,
    steps: u64,
    sequences: u64,
    /// The highest number of a sequence; numbers that beam searches kept and did not use are missing below it.
    last_sequence: Option<SequenceId>,
    /// Sequences by what ended them.
    ended: BTreeMap<End, u64>,
    prompt_tokens: u64,
    generation_tokens: u64,
    prefix_cache_queries: u64,
    prefix_cache_hits: u64,
    preemptions: u64,
    largest_step_tokens: u32,
    most_running: usize,
    most_blocks_in_use: u32,
    /// For each reason, the steps in which the first in the queue waited for it.
    steps_waited: BTreeMap<&'static str, u64>,
}

impl Summary {
    pub(super) fn new(header: &Header) -> Self {
        let (config, limits) = (&header.config, &header.limits);
        Self {
            engine: header.engine.chars().filter(|c| !c.is_control()).take(40).collect(),
            max_num_seqs: config.max_num_seqs.min(limits.max_num_seqs),
            max_num_batched_tokens: config.max_num_batched_tokens.min(limits.max_num_batched_tokens),
            block_size: limits.block_size,
            num_blocks: limits.num_blocks,
            complete: false,
            steps: 0,
            sequences: 0,
            last_sequence: None,
            ended: End::ALL.map(|end| (end, 0)).into(),
            prompt_tokens: 0,
            generation_tokens: 0,
            prefix_cache_queries: 0,
            prefix_cache_hits: 0,
            preemptions: 0,
            largest_step_tokens: 0,
            most_running: 0,
            most_blocks_in_use: 0,
            steps_waited: BTreeMap::new(),
        }
    }

    pub(super) fn added(&mut self, id: SequenceId) {
        self.sequences += 1;
        self.last_sequence = self.last_sequence.max(Some(id));
    }

    pub(super) fn ended(&mut self, end: End) {
        *self.ended.entry(end).or_default() += 1;
    }

    /// The figures so far.
    pub(super) fn counted(&mut self, stats: SchedulerStats) {
        self.steps = stats.steps;
        self.prompt_tokens = stats.prompt_tokens;
        self.generation_tokens = stats.generation_tokens;
        self.prefix_cache_queries = stats.prefix_cache_queries;
        self.prefix_cache_hits = stats.prefix_cache_hits;
        self.preemptions = stats.recompute_preemptions + stats.swap_preemptions;
        self.most_running = self.most_running.max(stats.running);
    }

    pub(super) fn planned(&mut self, planned: &ReplayedStep) {
        self.largest_step_tokens = self.largest_step_tokens.max(num_tokens(&planned.ran));
        self.most_blocks_in_use = self.most_blocks_in_use.max(planned.blocks.in_use);
        for decision in &planned.decisions {
            match *decision {
                Decision::Waits { id, because } if planned.waiting.contains(&id) => {
                    *self.steps_waited.entry(reason_name(because)).or_default() += 1;
                }
                _ => {}
            }
        }
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { engine, steps, sequences, preemptions, .. } = self;
        writeln!(out, "engine {engine}: {steps} steps, each planned again and found the same")?;
        if !self.complete {
            writeln!(out, "  the recording has no end: it still runs, or was cut short")?;
        }
        writeln!(
            out,
            "  limits       {} sequences, {} tokens a step, {} blocks of {} tokens",
            self.max_num_seqs, self.max_num_batched_tokens, self.num_blocks, self.block_size
        )?;
        writeln!(out, "  sequences    {sequences}")?;
        for (end, count) in self.ended.iter().filter(|(_, count)| **count > 0) {
            writeln!(out, "  ended        {count} by {}", end.text())?;
        }
        writeln!(
            out,
            "  tokens       {} of prompts, {} generated, at most {} in a step",
            self.prompt_tokens, self.generation_tokens, self.largest_step_tokens
        )?;
        writeln!(
            out,
            "  prefix cache {} of {} prompt tokens found",
            self.prefix_cache_hits, self.prefix_cache_queries
        )?;
        writeln!(
            out,
            "  at most      {} sequences at once, {} blocks in use",
            self.most_running, self.most_blocks_in_use
        )?;
        writeln!(out, "  preemptions  {preemptions}")?;
        for (reason, count) in &self.steps_waited {
            writeln!(out, "  in {count} steps the next in line waited: {reason}")?;
        }
        writeln!(out, "Ask further with --step N (1 to {steps}) or --sequence ID.")
    }
}

impl Report {
    /// What was asked for and is not in the record.
    pub(super) fn absent(&self, settings: &ReplaySettings) -> Option<String> {
        let steps = self.summary.steps;
        match (settings.step, settings.sequence) {
            (Some(step), _) if self.step.is_none() => {
                Some(format!("there is no step {step}; the record has steps 1 to {steps}"))
            }
            (_, Some(id)) if self.history.as_ref().is_none_or(|history| history.entries.is_empty()) => {
                Some(match self.summary.last_sequence {
                    Some(last) => format!(
                        "there is no sequence {id}; the record has {} with numbers from 0 to {}, of which beam searches \
                         leave some unused",
                        self.summary.sequences, last.0
                    ),
                    None => format!("there is no sequence {id}; the record has none"),
                })
            }
            _ => None,
        }
    }

    pub(super) fn write(&self, settings: &ReplaySettings, out: &mut dyn Write) -> io::Result<()> {
        let asks = settings.step.is_some() || settings.sequence.is_some();
        if settings.format == Format::Json {
            let mut answer = serde_json::Map::new();
            let mut put = |name: &str, value: serde_json::Result<serde_json::Value>| {
                answer.insert(name.to_owned(), value.expect("reports are plain data with string keys"));
            };
            put("summary", serde_json::to_value(&self.summary));
            self.step.iter().for_each(|step| put("step", serde_json::to_value(step)));
            self.history.iter().for_each(|history| put("sequence", serde_json::to_value(history)));
            serde_json::to_writer_pretty(&mut *out, &answer)?;
            return writeln!(out);
        }
        if !asks {
            return self.summary.write(out);
        }
        self.step.iter().try_for_each(|step| write_step(step, out))?;
        self.history.iter().filter(|history| !history.entries.is_empty()).try_for_each(|history| {
            writeln!(out, "sequence {}", history.id.0)?;
            history.entries.iter().try_for_each(|entry| {
                let (first, last) = (entry.first_step, entry.last_step);
                let steps = if first == last { first.to_string() } else { format!("{first}-{last}") };
                writeln!(out, "  step {steps:<13} {}", entry.what)
            })
        })
    }
}

fn write_step(step: &ReplayedStep, out: &mut dyn Write) -> io::Result<()> {
    let blocks = step.blocks;
    writeln!(
        out,
        "step {}: {} tokens of {} sequences; blocks: {} in use, {} cached, {} free",
        step.step,
        num_tokens(&step.ran),
        step.ran.len(),
        blocks.in_use,
        blocks.cached,
        blocks.free
    )?;
    for share in &step.ran {
        let end = share.position + share.num_tokens;
        let kind = if end <= share.num_prompt_tokens { "prefill" } else { "decode" };
        let sample = if share.samples { ", then a new token" } else { "" };
        let ahead = match (share.runs_ahead, share.num_placeholders) {
            (false, _) => "",
            (true, 0) => ", ahead of a step in flight",
            (true, _) => ", ahead: over the token that a step in flight samples",
        };
        let (id, first, last) = (share.id.0, share.position, end - 1);
        let place =
            if first == last { format!("position {first}") } else { format!("positions {first}-{last}") };
        writeln!(out, "  ran       {id:<8} {kind}: {} of {place}{sample}{ahead}", tokens(share.num_tokens))?;
    }
    let mut first_in_line = None;
    for decision in &step.decisions {
        match *decision {
            Decision::Admitted { id, row, num_cached_tokens } => {
                writeln!(out, "  admitted  {:<8} row {}, {} cached", id.0, row.0, tokens(num_cached_tokens))?;
            }
            Decision::Forked { id, parent, num_tokens } => {
                writeln!(out, "  forked    {:<8} from sequence {}, {}", id.0, parent.0, tokens(num_tokens))?;
            }
            Decision::Preempted { id, beneficiary, how } if id == beneficiary => {
                let how = how_text(how);
                writeln!(out, "  preempted {:<8} by itself: only sequences before it are left{how}", id.0)?;
            }
            Decision::Preempted { id, beneficiary, how } => {
                writeln!(out, "  preempted {:<8} for sequence {}{}", id.0, beneficiary.0, how_text(how))?;
            }
            Decision::Waits { id, because } => {
                first_in_line = first_in_line.or(Some(id).filter(|id| step.waiting.contains(id)));
                writeln!(out, "  waits     {:<8} {}", id.0, reason_text(because))?;
            }
        }
    }
    let behind: Vec<String> =
        step.waiting.iter().filter(|&&id| Some(id) != first_in_line).map(|id| id.0.to_string()).collect();
    if behind.is_empty() {
        return Ok(());
    }
    let (shown, more) = behind.split_at(behind.len().min(MAX_SHOWN));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    writeln!(out, "  behind    {}{more}", shown.join(", "))
}

fn how_text(how: Preemption) -> &'static str {
    match how {
        Preemption::Recompute => "",
        Preemption::Swap => ", to host memory",
    }
}

fn num_tokens(ran: &[Share]) -> u32 {
    ran.iter().map(|share| share.num_tokens).sum()
}

fn tokens(count: u32) -> String {
    format!("{count} token{}", if count == 1 { "" } else { "s" })
}

/// The reason in words, with its figures.
pub(super) fn reason_text(because: WaitReason) -> String {
    match because {
        WaitReason::NoBlocks { num_needed, num_available } => {
            format!("too few blocks: needs {num_needed}, {num_available} can be had")
        }
        WaitReason::FollowsPrefix { leader } => {
            format!("sequence {} is computing the same beginning", leader.0)
        }
        _ => reason_name(because).to_owned(),
    }
}

/// The reason in words.
fn reason_name(because: WaitReason) -> &'static str {
    match because {
        WaitReason::NoRow => "every row is taken",
        WaitReason::NoBudget => "the step's tokens are given out",
        WaitReason::TooManyPartialPrefills => "as many prompts as may be are in parts already",
        WaitReason::NoBlocks { .. } => "too few blocks",
        WaitReason::RunningLackBlocks => "sequences that run lack blocks",
        WaitReason::FollowsPrefix { .. } => "another is computing the same beginning",
        WaitReason::SwapsOut => "its KV is on the way to host memory",
        WaitReason::InFlight => "what it computes next is known when a step in flight is settled",
    }
}
