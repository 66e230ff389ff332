//! What was typed: names, placeholders and one line of help for each flag, as clap reads them.

use std::{net::IpAddr, path::PathBuf};

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{FalseyValueParser, NonEmptyStringValueParser},
};
use regatta_core::sampling::LogprobsMode;

use super::{scheduling::SchedulerFlags, simulation::SimulateFlags, units::Count};
use crate::replay::Format;

/// An LLM inference server: one model, one process, an OpenAI-compatible API.
#[derive(Debug, Parser)]
#[command(name = "regatta-engine", version, about, subcommand_required = true, arg_required_else_help = true)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Serve a model over HTTP
    Serve(Box<ServeFlags>),
    /// Print what a model's headers say as JSON
    Inspect {
        /// A GGUF file or a Hugging Face folder
        model: PathBuf,
    },
    /// Download a file, going on where an earlier try stopped
    Fetch {
        /// Where from: http:// or https://
        uri: String,
        /// Where the file appears once it is complete and checked
        #[arg(long, value_name = "PATH")]
        to: PathBuf,
        /// SHA-256 that the file must have
        #[arg(long, value_name = "HEX")]
        sha256: Option<String>,
    },
    /// Plan a recorded schedule again, without the model, and explain it
    #[command(after_help = REPLAY_HELP)]
    Replay {
        /// A file that `serve --record-schedule` wrote; `-`: standard input
        file: PathBuf,
        /// Explain this step: who ran, who waited and why, who was preempted for whom
        #[arg(long, value_name = "N")]
        step: Option<u64>,
        /// Tell the life of this sequence: each choice of a request is one, numbered from 0 by arrival, and so is each
        /// beam, for which a search keeps more numbers than it may use
        #[arg(long, value_name = "ID")]
        sequence: Option<u64>,
        /// How to write the answer
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Say what flags would do to latency, from a request trace and step times
    #[command(after_help = super::simulation::HELP)]
    Simulate(Box<SimulateFlags>),
}

const REPLAY_HELP: &str = "\
Each plan in the file is planned again by this program's scheduler and compared; the first that differs is an error.
The file holds no text and no tokens of users, only numbers that tell which prompts begin alike.

Examples:
  regatta-engine serve MODEL --record-schedule run.jsonl
  regatta-engine replay run.jsonl                  what happened over all
  regatta-engine replay run.jsonl --step 120       why step 120 was what it was
  regatta-engine replay run.jsonl --sequence 7     why the eighth sequence took so long
  regatta-engine replay run.jsonl -o json | jq .summary.preemptions";

#[derive(Debug, Args)]
pub(super) struct ServeFlags {
    /// A GGUF file or a Hugging Face folder
    pub(super) model: PathBuf,

    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    pub(super) host: IpAddr,
    /// Port of the HTTP API; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 8000)]
    pub(super) port: u16,
    /// Port of the read-only state for the operator and the gateway; absent: none
    #[arg(long, value_name = "PORT")]
    pub(super) internal_port: Option<u16>,
    /// Names that clients may use for the model; the first one labels metrics; default: the model's path
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = NonEmptyStringValueParser::new())]
    pub(super) served_model_name: Vec<String>,
    /// Keys of which clients of /v1 must send one; absent: no key is asked for
    #[arg(long, value_name = "KEY", num_args = 1.., env = "VLLM_API_KEY", hide_env_values = true)]
    pub(super) api_key: Vec<String>,

    #[command(flatten)]
    pub(super) scheduler: SchedulerFlags,
    /// Most choices (prompts times n) that wait or run at once beyond --max-num-seqs; more are answered 503
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(super) max_num_queued_reqs: u32,
    /// Most prompt tokens that wait for their first step; more are answered 503
    #[arg(long, value_name = "TOKENS", default_value = "16M")]
    pub(super) max_num_queued_tokens: Count,

    /// Memory for the KV cache (4G is 4 GiB); absent: as much as fits and can be used
    #[arg(long, value_name = "BYTES", conflicts_with = "num_gpu_blocks_override")]
    pub(super) kv_cache_memory_bytes: Option<Count>,
    /// Share of the memory that is left beside the weights that the KV cache may take
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, conflicts_with_all = ["kv_cache_memory_bytes", "num_gpu_blocks_override"])]
    pub(super) gpu_memory_utilization: f32,
    /// Host memory in GiB for the KV of preempted requests; 0: they are computed again
    #[arg(long, value_name = "GIB", default_value_t = 0.0)]
    pub(super) swap_space: f64,
    /// Number of KV blocks, instead of a computed one
    #[arg(long, value_name = "N")]
    pub(super) num_gpu_blocks_override: Option<u32>,

    /// Publish what the prefix cache holds on ZeroMQ: vLLM's JSON, such as {"enable_kv_cache_events": true}
    #[arg(long, value_name = "JSON")]
    pub(super) kv_events_config: Option<String>,
    /// Say in the usage how many prompt tokens came from the prefix cache
    #[arg(long)]
    pub(super) enable_prompt_tokens_details: bool,
    /// Serve POST /reset_prefix_cache
    #[arg(long, env = "VLLM_SERVER_DEV_MODE", value_parser = FalseyValueParser::new())]
    pub(super) enable_dev_endpoints: bool,

    /// Seed from which the seeds of requests that bring none are derived
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// Most log-probabilities per token that a request may ask for
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(super) max_logprobs: u32,
    /// What a log-probability is
    #[arg(long, value_name = "MODE", default_value = "raw_logprobs")]
    pub(super) logprobs_mode: Mode,
    /// Compute threads; absent: as many as the affinity mask and the CPU quota allow
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<usize>,

    /// Write each step's plan and what led to it into this file, for `regatta-engine replay`
    #[arg(long, value_name = "FILE")]
    pub(super) record_schedule: Option<PathBuf>,

    /// SHA-256 that the model file must have; checked before it is loaded
    #[arg(long, value_name = "HEX")]
    pub(super) model_sha256: Option<String>,
    /// Folder of the pod's own metadata (a downward API volume with a file `annotations`)
    #[arg(long, value_name = "DIR")]
    pub(super) pod_info: Option<PathBuf>,
    /// Seconds that requests in flight get to finish after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(super) shutdown_timeout: u64,
}

/// [`LogprobsMode`], as typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum Mode {
    RawLogprobs,
    ProcessedLogprobs,
    RawLogits,
    ProcessedLogits,
}

impl From<Mode> for LogprobsMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::RawLogprobs => Self::RawLogprobs,
            Mode::ProcessedLogprobs => Self::ProcessedLogprobs,
            Mode::RawLogits => Self::RawLogits,
            Mode::ProcessedLogits => Self::ProcessedLogits,
        }
    }
}
