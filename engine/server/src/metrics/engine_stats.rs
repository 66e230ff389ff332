//! What the engine thread reports, read from its snapshot at each scrape.

use std::{fmt, sync::OnceLock};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, counter::Counter, family::Family, gauge::ConstGauge, gauge::Gauge},
};

use crate::engine::{EngineHandle, EngineSnapshot};

/// The collector; it reports nothing until the engine runs.
#[derive(Default)]
pub(crate) struct EngineStats(OnceLock<EngineHandle>);

impl fmt::Debug for EngineStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EngineStats").field(&self.0.get().is_some()).finish()
    }
}

impl EngineStats {
    /// Reports this engine from now on.
    pub(crate) fn watch(&self, engine: EngineHandle) {
        // There is one engine for the life of the process; a second one would be a defect of start-up.
        assert!(self.0.set(engine).is_ok(), "the engine is started once");
    }
}

impl Collector for EngineStats {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Some(engine) = self.0.get() else { return Ok(()) };
        let snapshot = engine.snapshot();
        gauges(&snapshot, &mut encoder)?;
        counters(&snapshot, &mut encoder)?;
        preemptions(&snapshot, &mut encoder)?;
        let help = "Tokens computed by a step, of prompts and generated";
        let step_tokens = engine.step_tokens();
        let descriptor = encoder.encode_descriptor(
            "vllm:iteration_tokens_total",
            help,
            None,
            step_tokens.metric_type(),
        )?;
        step_tokens.encode(descriptor)?;
        cache_config(&snapshot, &mut encoder)
    }
}

#[allow(clippy::cast_precision_loss)] // sequences and blocks are far below 2^53
fn gauges(snapshot: &EngineSnapshot, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let kv = snapshot.stats.blocks;
    let stalled =
        if snapshot.in_flight() == 0 { 0.0 } else { snapshot.last_progress.elapsed().as_secs_f64() };
    let kv_usage = f64::from(kv.in_use) / f64::from(kv.total.max(1));
    let gauges = [
        ("vllm:num_requests_running", "Sequences that take part in steps", snapshot.stats.running as f64),
        ("vllm:num_requests_waiting", "Sequences that wait for a place", snapshot.stats.waiting as f64),
        ("vllm:kv_cache_usage_perc", "KV blocks in use as a share of all, 1 is all of them", kv_usage),
        ("vllm:gpu_cache_usage_perc", "Former name of vllm:kv_cache_usage_perc", kv_usage),
        (
            "vllm:num_requests_swapped",
            "Sequences that wait and have their KV in host memory",
            snapshot.stats.swapped as f64,
        ),
        (
            "vllm:cpu_cache_usage_perc",
            "Host blocks in use as a share of all, 1 is all of them; 0 without swap space",
            f64::from(snapshot.stats.host_blocks.in_use) / f64::from(snapshot.stats.host_blocks.total.max(1)),
        ),
        (
            "regatta:engine_seconds_since_progress",
            "Time since the latest step in seconds while work is in flight, else 0",
            stalled,
        ),
    ];
    for (name, help, value) in gauges {
        let gauge = ConstGauge::new(value);
        gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
    }
    Ok(())
}

fn counters(snapshot: &EngineSnapshot, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let counters = [
        ("vllm:prompt_tokens", "Prompt tokens whose prefill is done", snapshot.stats.prompt_tokens),
        ("vllm:generation_tokens", "Tokens generated", snapshot.stats.generation_tokens),
        (
            "vllm:prefix_cache_queries",
            "Prompt tokens looked up in the prefix cache",
            snapshot.stats.prefix_cache_queries,
        ),
        (
            "vllm:prefix_cache_hits",
            "Prompt tokens found in the prefix cache",
            snapshot.stats.prefix_cache_hits,
        ),
        (
            "vllm:gpu_prefix_cache_queries",
            "Former name of vllm:prefix_cache_queries",
            snapshot.stats.prefix_cache_queries,
        ),
        (
            "vllm:gpu_prefix_cache_hits",
            "Former name of vllm:prefix_cache_hits",
            snapshot.stats.prefix_cache_hits,
        ),
        ("regatta:engine_steps", "Steps run", snapshot.stats.steps),
    ];
    for (name, help, value) in counters {
        let counter = ConstCounter::new(value);
        counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
    }
    Ok(())
}

fn preemptions(snapshot: &EngineSnapshot, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let family = Family::<[(&str, &str); 1], Counter>::default();
    for (mode, value) in
        [("recompute", snapshot.stats.recompute_preemptions), ("swap", snapshot.stats.swap_preemptions)]
    {
        family.get_or_create(&[("mode", mode)]).inc_by(value);
    }
    let help = "Sequences that gave their blocks up for others, by what became of their KV";
    family.encode(encoder.encode_descriptor("vllm:num_preemptions", help, None, family.metric_type())?)
}

fn cache_config(snapshot: &EngineSnapshot, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let family = Family::<[(&str, String); 2], Gauge>::default();
    let labels = [
        ("block_size", snapshot.stats.block_size.to_string()),
        ("num_gpu_blocks", snapshot.stats.blocks.total.to_string()),
    ];
    family.get_or_create(&labels).set(1);
    let help = "How the KV cache is laid out; always 1";
    family.encode(encoder.encode_descriptor("vllm:cache_config_info", help, None, family.metric_type())?)
}
