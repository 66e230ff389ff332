use super::*;
use crate::scheduler::PreemptionMode;

const COST: CostModel = CostModel {
    step: 1000.0,
    prefill_token: 100.0,
    prefill_context: 0.0,
    decode_sequence: 50.0,
    decode_context: 0.0,
    after_idle: 0.0,
    swap_block: 10.0,
};

fn limits(num_blocks: u32) -> RunnerLimits {
    RunnerLimits {
        block_size: 4,
        num_blocks,
        kv_groups: crate::kv::KvGroups::FULL,
        num_host_blocks: 0,
        max_num_seqs: 8,
        max_num_batched_tokens: 64,
        max_in_flight: 1,
        feeds_sampled_tokens: false,
    }
}

fn arrival(seconds: f64, prompt: std::ops::Range<u32>, num_generated_tokens: u32) -> Arrival {
    Arrival { seconds, prompt: prompt.collect(), num_generated_tokens }
}

fn run(num_blocks: u32, arrivals: Vec<Arrival>) -> Outcome {
    simulate(SchedulerConfig::default(), limits(num_blocks), COST, arrivals, |_| {})
}

fn assert_near(found: &[f64], wanted: &[f64]) {
    let near = found.len() == wanted.len() && found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9);
    assert!(near, "{found:?} is not {wanted:?}");
}

#[test]
fn times_are_those_of_the_steps() {
    let outcome = run(64, vec![arrival(1.0, 0..10, 3)]);
    assert_near(&outcome.ttft, &[0.002]);
    assert_near(&outcome.itl, &[0.00105, 0.00105]);
    assert_near(&outcome.e2e, &[0.0041]);
    assert_near(&[outcome.seconds], &[1.0041]);
}

#[test]
fn the_first_step_after_a_pause_costs_more() {
    let arrivals = vec![arrival(0.0, 0..10, 2), arrival(1.0, 100..110, 2), arrival(1.001, 200..210, 1)];
    let cost = CostModel { after_idle: 500.0, ..COST };
    let outcome = simulate(SchedulerConfig::default(), limits(64), cost, arrivals, |_| {});
    assert_near(&outcome.ttft, &[0.0025, 0.0025, 0.00355]);
}

#[test]
fn who_arrives_during_a_step_waits_for_its_end() {
    let outcome = run(64, vec![arrival(0.0, 0..10, 1), arrival(0.001, 100..110, 1)]);
    assert_near(&outcome.ttft, &[0.002, 0.003]);
}

#[test]
fn a_small_pool_preempts_and_too_long_requests_are_counted() {
    let arrivals = vec![arrival(0.0, 0..4, 17), arrival(0.0, 100..104, 17), arrival(0.0, 0..400, 1)];
    let outcome = run(6, arrivals);
    assert!(outcome.stats.recompute_preemptions > 0);
    assert_eq!((outcome.num_refused, outcome.e2e.len()), (1, 2));
}

#[test]
fn swapping_takes_the_time_of_its_copies() {
    let arrivals = || vec![arrival(0.0, 0..4, 17), arrival(0.0, 100..104, 17)];
    let run = |swap_block| {
        let config = SchedulerConfig { preemption_mode: PreemptionMode::Swap, ..SchedulerConfig::default() };
        let limits = RunnerLimits { num_host_blocks: 8, ..limits(6) };
        simulate(config, limits, CostModel { swap_block, ..COST }, arrivals(), |_| {})
    };
    let (free, dear) = (run(0.0), run(1000.0));
    assert!(free.stats.swap_preemptions > 0 && free.stats.recompute_preemptions == 0, "{:?}", free.stats);
    assert_eq!(free.stats.swap_preemptions, dear.stats.swap_preemptions);
    let num_copies = (dear.seconds - free.seconds) / 1e-3;
    assert!(num_copies > 1.5 && (num_copies - num_copies.round()).abs() < 1e-6, "{num_copies}");
}

#[test]
fn a_model_is_found_again_from_its_steps_and_noise_that_only_slows() {
    let model =
        CostModel { prefill_context: 0.3, decode_context: 0.7, after_idle: 300.0, swap_block: 0.0, ..COST };
    let mut steps = Vec::new();
    for i in 0..200_u32 {
        let (x, y) = (f64::from(i % 17), f64::from(i % 5));
        let load = StepLoad {
            prefill_tokens: x * 9.0,
            prefill_context: x * x * 40.0,
            decode_sequences: y,
            decode_context: y * f64::from(i),
            swapped_blocks: 0.0,
            after_idle: f64::from(i % 3 / 2),
        };
        let slow = if i % 13 == 0 { 2.0 } else { 1.0 };
        steps.push((load, model.step_seconds(load) * slow));
    }
    let found = CostModel::fit(&steps);
    for (a, b) in found.coefficients().iter().zip(model.coefficients()) {
        assert!((a - b).abs() <= 0.02 * b, "{found:?}");
    }
}

#[test]
fn percentiles_are_values_of_the_list() {
    let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
    let found = Percentiles::of(&values).unwrap();
    assert_eq!(found, Percentiles { p50: 100.0, p90: 180.0, p99: 198.0, max: 200.0 });
    assert_eq!(Percentiles::of(&[]), None);
}
