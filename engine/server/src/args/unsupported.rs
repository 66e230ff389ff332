//! Command lines that clap refuses without saying enough: flags of vLLM that this engine does not honour, which are
//! refused by name with a sentence and never taken and ignored, and a model that a list of values has swallowed.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags with something better to say than that they do not exist: the flags, and what holds instead.
const INSTEAD: &[(&[&str], &str)] = &[
    (
        &["--allowed-origins", "--allowed-methods", "--allowed-headers"],
        "browsers are let in by a proxy in front",
    ),
    (&["--api-server-count"], "one process serves one replica"),
    (&["--async-scheduling"], "the CPU takes one step at a time; a runner that takes more is given more"),
    (&["--chat-template", "--chat-template-content-format"], "the chat template is the model's own"),
    (
        &[
            "--compilation-config",
            "-O",
            "--cuda-graph-sizes",
            "--cudagraph-capture-sizes",
            "--max-seq-len-to-capture",
        ],
        "nothing is compiled or captured",
    ),
    (
        &["--cpu-offload-gb", "--kv-offloading-size"],
        "weights are mapped from the file; nothing is offloaded. --swap-space is for the KV of preempted requests",
    ),
    (&["--data-parallel-size", "-dp"], "one process serves one replica; set `replicas` in the LLMService"),
    (&["--device"], "the CPU is the only device"),
    (
        &["--disable-log-requests", "--enable-log-requests", "--max-log-len"],
        "requests are logged with REGATTA_LOG=regatta_engine=debug in the environment, and not without",
    ),
    (&["--disable-log-stats", "--enable-log-stats"], "figures are at /metrics and not in the log"),
    (
        &["--download-dir", "--revision", "--hf-token", "--load-format", "--config-format"],
        "models are not downloaded or converted; MODEL is a GGUF file or a Hugging Face folder of this machine",
    ),
    (&["--dtype"], "weights keep the type that the file stores"),
    (&["--enable-auto-tool-choice", "--tool-call-parser"], "tools are not served"),
    (&["--enable-chunked-prefill"], "prefill is always chunked by --max-num-batched-tokens"),
    (
        &[
            "--enable-expert-parallel",
            "--pipeline-parallel-size",
            "-pp",
            "--tensor-parallel-size",
            "-tp",
            "--distributed-executor-backend",
            "--disable-custom-all-reduce",
        ],
        "a replica is one process",
    ),
    (&["--enable-force-include-usage"], "clients ask for usage with `stream_options`"),
    (&["--enable-lora", "--lora-modules", "--max-loras", "--max-lora-rank"], "adapters are not served"),
    (&["--enable-request-id-headers"], "every answer carries X-Request-Id"),
    (&["--enable-server-load-tracking"], "the load is at /metrics"),
    (&["--enable-sleep-mode"], "an engine does not sleep; set `replicas` in the LLMService"),
    (&["--enforce-eager"], "there are no graphs to turn off"),
    (
        &["--generation-config", "--override-generation-config"],
        "defaults come from the model's generation_config.json where it has one",
    ),
    (
        &["--hf-overrides", "--rope-scaling", "--rope-theta"],
        "a model's sizes are those of its files; change its config.json",
    ),
    (&["--kv-cache-dtype"], "the KV cache has one type"),
    (&["--kv-transfer-config"], "KV stays in the engine that computed it"),
    (&["--limit-mm-per-prompt", "--mm-processor-kwargs"], "messages are text"),
    (&["--max-long-partial-prefills"], "--max-num-partial-prefills is for prompts of every length"),
    (&["--model", "-m"], "the model is an argument: regatta-engine serve MODEL"),
    (
        &[
            "--num-scheduler-steps",
            "--use-v2-block-manager",
            "--num-lookahead-slots",
            "--scheduler-delay-factor",
        ],
        "there is one scheduler, which plans each step",
    ),
    (&["--prefix-caching-hash-algo"], "blocks are named by SHA-256"),
    (&["--quantization", "-q"], "weights keep the type that the file stores"),
    (&["--reasoning-parser", "--enable-reasoning"], "a model's reasoning is part of its text"),
    (&["--root-path", "--middleware", "--otlp-traces-endpoint"], "this belongs to a proxy in front"),
    (
        &["--speculative-config", "-sc", "--speculative-model", "--num-speculative-tokens"],
        "there is no speculative decoding",
    ),
    (&["--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs"], "TLS ends at a proxy in front"),
    (&["--stream-interval"], "every token is sent at once"),
    (&["--structured-outputs-config", "--guided-decoding-backend"], "output is not constrained by grammars"),
    (&["--task", "--runner", "--convert"], "models generate text"),
    (&["--tokenizer", "--tokenizer-mode"], "the tokenizer is the model's own"),
    (&["--trust-remote-code"], "no code of a model is ever run"),
    (&["--uds"], "listening is on --host and --port"),
    (
        &["--uvicorn-log-level", "--disable-uvicorn-access-log"],
        "the log is filtered with REGATTA_LOG in the environment",
    ),
];

/// Flags that take every word up to the next flag.
const LISTS: &[&str] = &["--served-model-name", "--api-key"];

/// Replaces clap's text where there is more to say. `argv` is what it read.
pub(super) fn explain(error: clap::Error, argv: &[OsString]) -> clap::Error {
    match error.kind() {
        ErrorKind::UnknownArgument => unknown(error, argv),
        ErrorKind::MissingRequiredArgument => without_model(error, argv),
        _ => error,
    }
}

fn unknown(error: clap::Error, argv: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else { return error };
    // Of a word such as `-tp`, clap tells the first letter.
    let is_short = typed.len() == 2;
    let word = argv
        .iter()
        .filter_map(|word| word.to_str())
        .find(|word| is_short && word.starts_with(typed.as_str()));
    let typed = word.unwrap_or(typed);
    let name = typed.split_once('=').map_or(typed, |(name, _)| name);
    let positive = name.strip_prefix("--no-").map(|rest| format!("--{rest}"));
    let is_meant = |flag: &&str| *flag == name || Some(*flag) == positive.as_deref();
    match INSTEAD.iter().find(|(flags, _)| flags.iter().any(is_meant)) {
        Some((_, instead)) => clap::Error::raw(
            ErrorKind::UnknownArgument,
            format!("{name} is not supported: {instead}. Remove it, or see `regatta-engine serve --help`\n"),
        ),
        None => error,
    }
}

fn without_model(error: clap::Error, argv: &[OsString]) -> clap::Error {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return error };
    let list = LISTS.iter().find(|list| argv.iter().any(|word| word == **list));
    match list {
        Some(list) if missing.iter().any(|name| name == "<MODEL>") => clap::Error::raw(
            ErrorKind::MissingRequiredArgument,
            format!(
                "MODEL is missing: {list} takes every word up to the next flag. Put MODEL first: regatta-engine serve \
                 MODEL {list} ...\n"
            ),
        ),
        _ => error,
    }
}
