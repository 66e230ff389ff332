//! Records that are not what they should be. That whole ones are replayed is held by `random_schedules`.

use regatta_core::kv::KvGroups;
use regatta_core::plan::Row;
use regatta_core::replay::{
    FORMAT_VERSION, Header, HeaderError, RecordedPlan, RecordedSequence, RecordedShare, ReplayError,
    Replayer, ScheduleRecord,
};
use regatta_core::runner::RunnerLimits;
use regatta_core::scheduler::SchedulerConfig;
use regatta_core::sequence::SequenceId;

fn header() -> Header {
    let limits = RunnerLimits {
        block_size: 4,
        num_blocks: 8,
        kv_groups: KvGroups::FULL,
        num_host_blocks: 0,
        max_num_seqs: 2,
        max_num_batched_tokens: 16,
        max_in_flight: 1,
        feeds_sampled_tokens: false,
    };
    let engine = "test".to_owned();
    Header { regatta_schedule: FORMAT_VERSION, engine, config: SchedulerConfig::default(), limits }
}

fn add(id: u64) -> ScheduleRecord {
    let prompt = vec![1, 2, 3];
    let id = SequenceId(id);
    ScheduleRecord::Add(RecordedSequence {
        id,
        prompt,
        max_tokens: 2,
        priority: 0,
        forks: None,
        holds: false,
        prompt_logprobs: false,
    })
}

#[test]
fn a_plan_that_differs_is_named_with_its_step_and_what_differs() {
    let mut replayer = Replayer::new(&header()).unwrap();
    replayer.apply(add(0)).unwrap();
    let sequences = vec![RecordedShare(Row(0), 0, 2, 0, 1, true)];
    let plan = RecordedPlan { step: 1, sequences, ..RecordedPlan::default() };
    match replayer.apply(ScheduleRecord::Plan(plan)) {
        Err(ReplayError::Differs { step: 1, difference }) => {
            assert!(difference.contains("admitted"), "{difference}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_record_that_contradicts_itself_is_refused() {
    let mut replayer = Replayer::new(&header()).unwrap();
    let refused = |result| matches!(result, Err(ReplayError::Contradiction(_)));
    assert!(refused(replayer.apply(ScheduleRecord::Settle(Vec::new()))));
    assert!(refused(replayer.apply(ScheduleRecord::Fail)));
    replayer.apply(add(7)).unwrap();
    assert!(refused(replayer.apply(add(7))));
    let differs = replayer.apply(ScheduleRecord::Nothing);
    assert!(matches!(differs, Err(ReplayError::Differs { step: 1, .. })), "{differs:?}");
}

#[test]
fn a_header_of_huge_numbers_takes_no_memory() {
    let mut huge = header();
    huge.limits.num_blocks = u32::MAX;
    assert!(matches!(Replayer::new(&huge), Err(HeaderError::OutOfBounds { name: "limits.num_blocks", .. })));
    let mut other = header();
    other.regatta_schedule = FORMAT_VERSION + 1;
    assert!(matches!(Replayer::new(&other), Err(HeaderError::Version { .. })));
}
