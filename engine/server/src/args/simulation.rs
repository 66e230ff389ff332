//! The flags of `simulate`.

use std::{path::PathBuf, str::FromStr};

use clap::Args;
use regatta_core::{scheduler::PreemptionMode, simulate::CostModel};

use super::{
    scheduling::{SchedulerFlags, SchedulerSettings},
    units::Count,
};
use crate::{
    replay::Format,
    simulate::{CostSource, SimulateSettings, TraceSettings},
};

/// As in the replay of schedules.
const MAX_NUM_BLOCKS: u32 = 1 << 22;

pub(super) const HELP: &str = "\
The real scheduler runs over the trace; how long a step takes is a formula: a cost for the step, for each prefill token,
for each position that one attends to (prefill-context), for each decoding sequence, for each position that one attends
to (decode-context), for a step after a pause (after-idle), and for each KV block that goes to host memory or back
(swap-block).

Examples:
  regatta-engine simulate trace.csv --calibrate MODEL                   step times of MODEL on this machine
  regatta-engine simulate trace.csv --cost step=5000,prefill-token=400,decode-sequence=900 --max-num-seqs 32
  regatta-engine simulate trace.csv --cost ... --time-scale 0.5         twice the load
  regatta-engine simulate trace.csv --cost ... --shared-prefix-len 500  with a system prompt in common
  regatta-engine simulate trace.csv --calibrate MODEL --check           the real engine beside it, in real time

A trace is CSV: time of arrival (2023-11-16 18:17:03.98, or seconds), prompt tokens, generated tokens.";

#[derive(Debug, Args)]
pub(super) struct SimulateFlags {
    /// CSV of requests: time of arrival, prompt tokens, generated tokens; `-`: standard input
    trace: PathBuf,
    /// Microseconds: step=, prefill-token=, prefill-context=, decode-sequence=, decode-context=, after-idle=, swap-block=, by commas; absent ones are 0
    #[arg(long, value_name = "LIST", conflicts_with = "calibrate")]
    cost: Option<Cost>,
    /// Measure step times on this model: a GGUF file or a Hugging Face folder
    #[arg(long, value_name = "MODEL")]
    calibrate: Option<PathBuf>,
    /// Run the requests on the real engine as well, in real time, and compare medians
    #[arg(long, requires = "calibrate")]
    check: bool,
    /// Compute threads of the measured model; absent: as many as the affinity mask and the CPU quota allow
    #[arg(long, value_name = "N", requires = "calibrate")]
    threads: Option<usize>,

    /// Only the first requests of the trace
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// Multiply the times between arrivals: 0.5 doubles the load
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    time_scale: f64,
    /// Multiply prompt and answer lengths
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    token_scale: f64,
    /// Tokens at the beginning of each prompt that others have, too
    #[arg(long, value_name = "TOKENS", default_value = "0")]
    shared_prefix_len: Count,
    /// Different shared beginnings; requests take them in turn
    #[arg(long, value_name = "N", default_value_t = 1, requires = "shared_prefix_len")]
    num_shared_prefixes: u32,

    #[command(flatten)]
    scheduler: SchedulerFlags,
    /// Number of KV blocks
    #[arg(long, value_name = "N", default_value_t = 4096)]
    num_gpu_blocks_override: u32,
    /// Blocks of host memory for the KV of preempted requests, what --swap-space is to `serve`; 0: they are computed again
    #[arg(long, value_name = "N", default_value_t = 0)]
    num_host_blocks: u32,

    /// How to write the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Clone, Copy, Debug)]
struct Cost(CostModel);

impl FromStr for Cost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cost = CostModel::default();
        for part in text.split(',') {
            let refuse = || format!("`{part}` is not NAME=MICROSECONDS");
            let (name, value) = part.split_once('=').ok_or_else(refuse)?;
            let value: f64 = value.trim().parse().map_err(|_| refuse())?;
            if !(0.0..=1e12).contains(&value) {
                return Err(format!("`{part}`: must be between 0 and 1e12 microseconds"));
            }
            match name.trim() {
                "step" => cost.step = value,
                "prefill-token" => cost.prefill_token = value,
                "prefill-context" => cost.prefill_context = value,
                "decode-sequence" => cost.decode_sequence = value,
                "decode-context" => cost.decode_context = value,
                "after-idle" => cost.after_idle = value,
                "swap-block" => cost.swap_block = value,
                other => return Err(format!("`{other}` is no cost; see --help")),
            }
        }
        Ok(Self(cost))
    }
}

impl TryFrom<SimulateFlags> for SimulateSettings {
    /// A sentence that names the flag, what is wrong, and what would be right.
    type Error = String;

    fn try_from(flags: SimulateFlags) -> Result<Self, String> {
        for (flag, value) in [("--time-scale", flags.time_scale), ("--token-scale", flags.token_scale)] {
            if !(1e-6..=1e6).contains(&value) {
                return Err(format!("{flag} {value}: must be between 1e-6 and 1e6"));
            }
        }
        if flags.requests == Some(0) {
            return Err("--requests 0: there is nothing to simulate; give at least 1, or leave it out".into());
        }
        if flags.num_shared_prefixes == 0 {
            return Err(
                "--num-shared-prefixes 0: must be at least 1; --shared-prefix-len 0 shares nothing".into()
            );
        }
        let num_blocks = flags.num_gpu_blocks_override;
        if !(1..=MAX_NUM_BLOCKS).contains(&num_blocks) {
            return Err(format!(
                "--num-gpu-blocks-override {num_blocks}: must be between 1 and {MAX_NUM_BLOCKS}"
            ));
        }
        let scheduler: SchedulerSettings = flags.scheduler.try_into()?;
        let num_host_blocks = flags.num_host_blocks;
        if num_host_blocks > MAX_NUM_BLOCKS {
            return Err(format!("--num-host-blocks {num_host_blocks}: must be at most {MAX_NUM_BLOCKS}"));
        }
        if scheduler.preemption_mode == PreemptionMode::Swap && num_host_blocks == 0 {
            return Err(
                "--preemption-mode swap: there is no host memory to swap to; give --num-host-blocks as well"
                    .into(),
            );
        }
        Ok(Self {
            trace: TraceSettings {
                file: flags.trace,
                num_requests: flags.requests,
                time_scale: flags.time_scale,
                token_scale: flags.token_scale,
                shared_prefix_len: u32::try_from(flags.shared_prefix_len.0).unwrap_or(u32::MAX),
                num_shared_prefixes: flags.num_shared_prefixes,
                vocab_size: VOCAB_SIZE,
            },
            scheduler,
            num_blocks,
            num_host_blocks,
            cost: match (flags.cost, flags.calibrate) {
                // The conflict of --cost and --calibrate keeps clap from asking for the second.
                (Some(_), None) if flags.check || flags.threads.is_some() => {
                    return Err(
                        "--check and --threads: there is no model; give --calibrate, not --cost".into()
                    );
                }
                (Some(Cost(cost)), _) => CostSource::Given(cost),
                (None, Some(model)) => CostSource::Model(model),
                (None, None) => {
                    return Err("nothing says how long a step takes: give --calibrate MODEL to measure it, or --cost \
                                with the `step times` that an earlier run printed"
                        .into());
                }
            },
            check: flags.check,
            threads: flags.threads,
            format: flags.output,
        })
    }
}

/// Tokens of made-up prompts are below this, which is below every real model's vocabulary.
const VOCAB_SIZE: u32 = 30_000;
