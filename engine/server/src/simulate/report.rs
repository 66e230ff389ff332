//! Figures of a simulation, for people and for programs.

use std::io::{self, Write};

use regatta_core::simulate::{CostModel, Outcome, Percentiles};
use serde::Serialize;

use crate::replay::Format;

/// How far simulated and measured medians may be apart.
const MAX_APART: f64 = 0.2;

/// What came of a simulation. Times are in seconds, costs in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Requests that ended.
    pub requests: u64,
    /// Requests that can never run with these limits.
    pub refused: u64,
    /// From the first arrival to the last token.
    pub seconds: f64,
    /// Steps planned.
    pub steps: u64,
    /// Prompt tokens of all requests.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// From arrival to first token.
    pub ttft: Option<Percentiles>,
    /// Between tokens of a request.
    pub itl: Option<Percentiles>,
    /// From arrival to last token.
    pub e2e: Option<Percentiles>,
    /// Sequences that lost their blocks.
    pub preemptions: u64,
    /// Those of them whose KV went to host memory.
    pub swap_preemptions: u64,
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_cache_queries: u64,
    /// Those of them that were found.
    pub prefix_cache_hits: u64,
    /// Step times used.
    pub cost: CostModel,
    /// The same requests on the real engine, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// What requests felt on the real engine, and simulated medians over measured ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// From arrival to first token.
    pub ttft: Option<Percentiles>,
    /// Between tokens of a request.
    pub itl: Option<Percentiles>,
    /// From arrival to last token.
    pub e2e: Option<Percentiles>,
    /// Median TTFT, simulated over measured.
    pub ttft_ratio: f64,
    /// Median ITL, simulated over measured.
    pub itl_ratio: f64,
}

impl Report {
    /// The figures of an outcome, beside a measured one.
    pub fn new(cost: CostModel, outcome: &Outcome, measured: Option<&Outcome>) -> Self {
        let stats = outcome.stats;
        Self {
            requests: outcome.e2e.len() as u64,
            refused: outcome.num_refused,
            seconds: outcome.seconds,
            steps: stats.steps,
            prompt_tokens: stats.prompt_tokens,
            generation_tokens: stats.generation_tokens,
            ttft: Percentiles::of(&outcome.ttft),
            itl: Percentiles::of(&outcome.itl),
            e2e: Percentiles::of(&outcome.e2e),
            preemptions: stats.recompute_preemptions + stats.swap_preemptions,
            swap_preemptions: stats.swap_preemptions,
            prefix_cache_queries: stats.prefix_cache_queries,
            prefix_cache_hits: stats.prefix_cache_hits,
            cost,
            measured: measured.map(|measured| Measured::new(outcome, measured)),
        }
    }

    /// Whether the real engine was asked, and its medians are too far away.
    pub fn is_apart(&self) -> bool {
        let near = |ratio: f64| (1.0 - MAX_APART..=1.0 + MAX_APART).contains(&ratio);
        self.measured.as_ref().is_some_and(|measured| !near(measured.ttft_ratio) || !near(measured.itl_ratio))
    }

    pub(super) fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        if format == Format::Json {
            serde_json::to_writer_pretty(&mut *out, self)?;
            return writeln!(out);
        }
        writeln!(
            out,
            "{} requests, {} prompt tokens, {} generated, in {:.1} s and {} steps",
            self.requests, self.prompt_tokens, self.generation_tokens, self.seconds, self.steps
        )?;
        if self.refused > 0 {
            writeln!(out, "{} requests are too long for --max-model-len or the KV blocks", self.refused)?;
        }
        writeln!(out, "{:16} {:>10} {:>10} {:>10} {:>10}", "milliseconds", "p50", "p90", "p99", "max")?;
        let rows = [("TTFT", self.ttft), ("ITL", self.itl), ("end to end", self.e2e)];
        rows.iter().try_for_each(|(name, times)| write_times(name, *times, out))?;
        if let Some(measured) = &self.measured {
            let rows = [
                ("TTFT measured", measured.ttft),
                ("ITL measured", measured.itl),
                ("e2e measured", measured.e2e),
            ];
            rows.iter().try_for_each(|(name, times)| write_times(name, *times, out))?;
            writeln!(
                out,
                "simulated over measured, medians: TTFT {:.2}, ITL {:.2}",
                measured.ttft_ratio, measured.itl_ratio
            )?;
        }
        let share = 100.0 * self.prefix_cache_hits as f64 / self.prefix_cache_queries.max(1) as f64;
        writeln!(
            out,
            "preemptions      {}, {} of them to host memory",
            self.preemptions, self.swap_preemptions
        )?;
        writeln!(out, "prefix cache     {share:.1} % of {} prompt tokens found", self.prefix_cache_queries)?;
        let CostModel { step, prefill_token, prefill_context, decode_sequence, .. } = self.cost;
        let CostModel { decode_context, after_idle, swap_block, .. } = self.cost;
        writeln!(
            out,
            "step times       --cost step={step:.4},prefill-token={prefill_token:.4},\
             prefill-context={prefill_context:.6},decode-sequence={decode_sequence:.4},\
             decode-context={decode_context:.6},after-idle={after_idle:.4},swap-block={swap_block:.4}"
        )
    }
}

impl Measured {
    fn new(simulated: &Outcome, measured: &Outcome) -> Self {
        let median = |times: &[f64]| Percentiles::of(times).map_or(0.0, |times| times.p50);
        Self {
            ttft: Percentiles::of(&measured.ttft),
            itl: Percentiles::of(&measured.itl),
            e2e: Percentiles::of(&measured.e2e),
            ttft_ratio: median(&simulated.ttft) / median(&measured.ttft).max(f64::MIN_POSITIVE),
            itl_ratio: median(&simulated.itl) / median(&measured.itl).max(f64::MIN_POSITIVE),
        }
    }
}

fn write_times(name: &str, times: Option<Percentiles>, out: &mut dyn Write) -> io::Result<()> {
    let Some(Percentiles { p50, p90, p99, max }) = times else {
        return writeln!(out, "{name:16} none");
    };
    let [p50, p90, p99, max] = [p50, p90, p99, max].map(|seconds| seconds * 1e3);
    writeln!(out, "{name:16} {p50:10.1} {p90:10.1} {p99:10.1} {max:10.1}")
}
