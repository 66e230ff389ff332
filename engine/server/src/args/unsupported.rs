//! Flags of vLLM that this engine does not honour: refused by name with a sentence, never taken and ignored.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags with something better to say than that they do not exist: the flag, and what holds instead.
const INSTEAD: &[(&str, &str)] = &[
    ("--async-scheduling", "the CPU takes one step at a time; a runner that takes more is given more"),
    ("--chat-template", "the chat template is the model's own"),
    ("--cpu-offload-gb", "weights are mapped from the file; nothing is offloaded"),
    ("--data-parallel-size", "one process serves one replica; set `replicas` in the LLMService"),
    ("--device", "the CPU is the only device"),
    ("--dtype", "weights keep the type that the file stores"),
    ("--enable-chunked-prefill", "prefill is always chunked by --max-num-batched-tokens"),
    ("--enable-lora", "adapters are not served"),
    ("--enforce-eager", "there are no graphs to turn off"),
    ("--generation-config", "defaults come from the model's generation_config.json where it has one"),
    ("--kv-cache-dtype", "the KV cache has one type"),
    ("--pipeline-parallel-size", "a replica is one process"),
    ("--quantization", "weights keep the type that the file stores"),
    ("--speculative-config", "there is no speculative decoding"),
    ("--tensor-parallel-size", "a replica is one process"),
    ("--tokenizer", "the tokenizer is the model's own"),
    ("--trust-remote-code", "no code of a model is ever run"),
    ("--uds", "listening is on --host and --port"),
];

/// Replaces clap's text for a known flag of vLLM by the reason why it is refused.
pub(super) fn explain(error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else { return error };
    let name = typed.split_once('=').map_or(typed.as_str(), |(name, _)| name);
    match INSTEAD.iter().find(|(flag, _)| *flag == name) {
        Some((flag, reason)) => clap::Error::raw(
            ErrorKind::UnknownArgument,
            format!("{flag} is not supported: {reason}. Remove it, or see `regatta-engine serve --help`\n"),
        ),
        None => error,
    }
}
