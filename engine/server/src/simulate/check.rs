//! The same arrivals on the real engine.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use regatta_core::sampling::SamplingParams;
use regatta_core::simulate::{Arrival, CostModel, Outcome};
use tokio::task::JoinSet;

use super::calibrate::{self, Calibration};
use super::{SimulateError, SimulateSettings};
use crate::engine::{Engine, EngineConfig, EngineHandle, Event, GenerateRequest};

/// How long the engine's end is waited for.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Measures steps, runs the arrivals in real time on the engine thread, and measures steps again, so that a machine
/// that changes its speed is met halfway. What requests felt, and the step times.
pub(super) async fn run(
    settings: &SimulateSettings,
    model: &Path,
    arrivals: &[Arrival],
) -> Result<(CostModel, Outcome), SimulateError> {
    let mut measured = Calibration::default();
    tracing::info!("measuring step times");
    tokio::task::block_in_place(|| measure(settings, model, arrivals, &mut measured))?;
    let loaded = calibrate::load(settings, model)?;
    let scheduler = settings.scheduler.config(loaded.max_model_len);
    let config = EngineConfig { scheduler, max_queued_requests: arrivals.len(), ..EngineConfig::default() };
    let (engine, thread) =
        Engine::spawn(loaded.runner, config).map_err(|error| SimulateError::Engine(error.to_string()))?;
    let last = arrivals.last().map_or(0.0, |arrival| arrival.seconds);
    tracing::info!("running {} requests in real time; the last arrives in {last:.0} s", arrivals.len());
    let outcome = play(&engine, arrivals).await?;
    tokio::task::block_in_place(|| thread.shutdown(Instant::now() + SHUTDOWN_TIMEOUT));
    tracing::info!("measuring step times again");
    tokio::task::block_in_place(|| measure(settings, model, arrivals, &mut measured))?;
    Ok((measured.cost(), outcome))
}

fn measure(
    settings: &SimulateSettings,
    model: &Path,
    arrivals: &[Arrival],
    measured: &mut Calibration,
) -> Result<(), SimulateError> {
    let mut runner = calibrate::load(settings, model)?.runner;
    Ok(measured.add(&mut *runner, arrivals)?)
}

async fn play(engine: &EngineHandle, arrivals: &[Arrival]) -> Result<Outcome, SimulateError> {
    let start = Instant::now();
    let mut requests = JoinSet::new();
    for arrival in arrivals {
        requests.spawn(one(engine.clone(), arrival.clone(), start));
    }
    let mut outcome = Outcome::default();
    while let Some(done) = requests.join_next().await {
        let times = done.map_err(|panic| SimulateError::Engine(panic.to_string()))??;
        let Some((arrival, tokens)) = times else {
            outcome.num_refused += 1;
            continue;
        };
        outcome.ttft.extend(tokens.first().map(|first| first - arrival));
        outcome.itl.extend(tokens.windows(2).map(|pair| pair[1] - pair[0]));
        outcome.e2e.extend(tokens.last().map(|last| last - arrival));
        outcome.seconds = tokens.last().map_or(outcome.seconds, |&last| outcome.seconds.max(last));
    }
    Ok(outcome)
}

/// When a request arrived and each of its tokens came, in seconds from the start; `None` when it was too long.
async fn one(
    engine: EngineHandle,
    arrival: Arrival,
    start: Instant,
) -> Result<Option<(f64, Vec<f64>)>, SimulateError> {
    let at = start + Duration::from_secs_f64(arrival.seconds);
    tokio::time::sleep_until(at.into()).await;
    let request = GenerateRequest {
        request_id: String::new(),
        prompt: Arc::clone(&arrival.prompt),
        n: 1,
        priority: 0,
        beams: None,
        cache_salt: None,
        sampling: SamplingParams {
            max_tokens: arrival.num_generated_tokens,
            temperature: 0.0,
            ..SamplingParams::default()
        },
    };
    let mut streams = match engine.submit(request) {
        Ok(streams) => streams,
        Err(crate::engine::SubmitError::Impossible(_)) => return Ok(None),
        Err(error) => return Err(SimulateError::Engine(error.to_string())),
    };
    let Some(mut stream) = streams.pop() else { return Ok(None) };
    let mut tokens = Vec::new();
    while let Some(event) = stream.recv().await {
        match event {
            Event::Token { .. } => tokens.push(start.elapsed().as_secs_f64()),
            Event::Failed { reason } => return Err(SimulateError::Engine(reason)),
            _ => {}
        }
    }
    Ok(Some((arrival.seconds, tokens)))
}
