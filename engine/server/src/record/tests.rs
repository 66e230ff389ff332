use std::io::{self, Write};
use std::time::Instant;

use regatta_core::replay::CancelReason;
use regatta_core::sequence::SequenceId;

use super::*;

fn header() -> Header {
    let limits = RunnerLimits {
        block_size: 4,
        num_blocks: 8,
        kv_groups: regatta_core::kv::KvGroups::FULL,
        num_host_blocks: 0,
        max_num_seqs: 2,
        max_num_batched_tokens: 16,
        max_in_flight: 1,
        feeds_sampled_tokens: false,
    };
    let engine = "test".to_owned();
    Header { regatta_schedule: FORMAT_VERSION, engine, config: SchedulerConfig::default(), limits }
}

/// A disk that is full from the start.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A disk that answers nothing as long as the sender lives.
struct Stuck(Receiver<()>);

impl Write for Stuck {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_on(recording: &Recording) -> bool {
    recording.0.as_ref().is_some_and(|active| active.sender.is_some())
}

/// Sees one thing after the other until the recording has ended.
fn see_until_ended(recording: &mut Recording) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while is_on(recording) {
        assert!(Instant::now() < deadline, "the recording goes on");
        recording.see(|| Observation::Cancelled(SequenceId(1), CancelReason::Disconnected));
    }
}

#[test]
fn a_full_disk_ends_the_recording_and_nothing_else() {
    let mut recording = Recording::into(Path::new("full"), Full, &header()).unwrap();
    see_until_ended(&mut recording);
    recording.see(|| unreachable!("nothing is made for a recording that has ended"));
}

#[test]
fn a_disk_that_does_not_answer_ends_the_recording_and_nothing_else() {
    let (stuck, silence) = sync_channel(0);
    let mut recording = Recording::into(Path::new("stuck"), Stuck(silence), &header()).unwrap();
    see_until_ended(&mut recording);
    drop(stuck);
}

#[test]
fn a_whole_recording_ends_with_its_last_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("schedule.jsonl");
    let mut recording = Recording::start(Some(&path), &header().config, header().limits).unwrap();
    recording.see(|| Observation::Nothing);
    drop(recording);
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("{\"regatta_schedule\":2,"), "{text}");
    assert_eq!(lines[1..], ["\"nothing\"", "\"end\""]);
}
