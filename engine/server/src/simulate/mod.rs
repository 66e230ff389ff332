//! `regatta-engine simulate`: what flags do to latency, from the real scheduler and a formula for step times.

mod calibrate;
mod check;
mod progress;
mod report;
mod steps;
mod trace;

use std::io::Write;
use std::path::PathBuf;

use regatta_core::kv::KvGroups;
use regatta_core::runner::RunnerLimits;
use regatta_core::simulate::{Arrival, CostModel, Outcome, simulate};
pub use report::Report;

pub use trace::{TraceError, TraceSettings};

use calibrate::Calibration;
use progress::Bar;

use crate::args::{MaxModelLen, SchedulerSettings};
use crate::load_error::ModelLoadError;
use crate::replay::Format;

/// What is to be simulated.
#[derive(Clone, Debug)]
pub struct SimulateSettings {
    /// Who arrives when, with how much.
    pub trace: TraceSettings,
    /// How steps are planned.
    pub scheduler: SchedulerSettings,
    /// KV blocks in the pool.
    pub num_blocks: u32,
    /// Blocks of host memory for preempted sequences.
    pub num_host_blocks: u32,
    /// How long steps take.
    pub cost: CostSource,
    /// Whether to run the same on the real engine and compare.
    pub check: bool,
    /// Compute threads of the model that is measured; absent: as many as the process may use.
    pub threads: Option<usize>,
    /// How the answer is written.
    pub format: Format,
}

/// Where step times come from.
#[derive(Clone, Debug, PartialEq)]
pub enum CostSource {
    /// They are given.
    Given(CostModel),
    /// They are measured on this model.
    Model(PathBuf),
}

/// Why nothing was simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The model that was to be measured.
    #[error(transparent)]
    Load(#[from] ModelLoadError),
    /// A step of the model failed.
    #[error("cannot measure the model")]
    Step(#[from] regatta_core::runner::StepError),
    /// The real engine did not take a request or did not answer it.
    #[error("the real engine could not run the trace: {0}")]
    Engine(String),
    /// Simulated and real differ too much.
    #[error(
        "simulated and measured medians differ by more than 20 %; was the machine busy with something else?"
    )]
    Apart,
    /// The answer cannot be written.
    #[error("cannot write the answer")]
    Output(#[from] std::io::Error),
}

/// Simulates, and writes the answer to `out`. With [`SimulateSettings::check`], in real time.
///
/// # Errors
/// See [`SimulateError`].
pub async fn run(settings: &SimulateSettings, out: &mut dyn Write) -> Result<(), SimulateError> {
    let arrivals = trace::read(&settings.trace)?;
    let (cost, measured) = match &settings.cost {
        CostSource::Given(cost) => (*cost, None),
        CostSource::Model(model) if settings.check => {
            let (cost, outcome) = check::run(settings, model, &arrivals).await?;
            (cost, Some(outcome))
        }
        CostSource::Model(model) => {
            let mut measured = Calibration::default();
            measured.add(&mut *calibrate::load(settings, model)?.runner, &arrivals)?;
            (measured.cost(), None)
        }
    };
    let outcome = simulated(settings, cost, &arrivals);
    let report = Report::new(cost, &outcome, measured.as_ref());
    report.write(settings.format, out)?;
    if report.is_apart() { Err(SimulateError::Apart) } else { Ok(()) }
}

/// The outcome by step times that are given, without a word: for tables.
///
/// # Errors
/// The trace, or step times that would have to be measured.
pub fn outcome(settings: &SimulateSettings) -> Result<Outcome, SimulateError> {
    let CostSource::Given(cost) = settings.cost else {
        return Err(SimulateError::Engine("step times are to be measured; give --cost".into()));
    };
    Ok(simulated(settings, cost, &trace::read(&settings.trace)?))
}

fn simulated(settings: &SimulateSettings, cost: CostModel, arrivals: &[Arrival]) -> Outcome {
    let limits = limits(settings);
    let max_model_len = match settings.scheduler.max_model_len {
        MaxModelLen::Tokens(tokens) => tokens,
        MaxModelLen::Auto => limits.num_blocks.saturating_mul(limits.block_size),
    };
    let config = settings.scheduler.config(max_model_len);
    let mut bar = Bar::new(arrivals.len() as u64);
    simulate(config, limits, cost, arrivals.iter().cloned(), |ended| bar.show(ended))
}

fn limits(settings: &SimulateSettings) -> RunnerLimits {
    RunnerLimits {
        block_size: settings.scheduler.block_size,
        num_blocks: settings.num_blocks,
        kv_groups: KvGroups::FULL,
        num_host_blocks: settings.num_host_blocks,
        max_num_seqs: settings.scheduler.max_num_seqs,
        max_num_batched_tokens: settings.scheduler.max_num_batched_tokens,
        max_in_flight: 1,
        feeds_sampled_tokens: false,
    }
}
