//! A recorded run, replayed.

use std::path::{Path, PathBuf};

use regatta_core::{runner::ModelRunner, testing::StagedRunner};
use regatta_engine::replay::{self, Format, ReplaySettings};

use super::*;

/// Runs requests that compete for few blocks, some with a beginning in common, some cancelled, and records them.
async fn record(
    folder: &Path,
    runner: impl FnOnce(FakeRunner) -> Box<dyn ModelRunner>,
    limits: RunnerLimits,
) -> (PathBuf, EngineSnapshot) {
    let path = folder.join("schedule.jsonl");
    let limits = RunnerLimits { num_blocks: 24, ..limits };
    let config = EngineConfig { record_schedule: Some(path.clone()), ..config() };
    let (handle, thread) = Engine::spawn(runner(FakeRunner::new(limits, REPLY)), config).unwrap();
    let streams: Vec<_> = (0..24)
        .flat_map(|i| {
            let own = 1000 * (i + 1)..1000 * (i + 1) + i;
            handle.submit(request((0..12).chain(own), 1, 20)).unwrap()
        })
        .collect();
    for (index, stream) in streams.into_iter().enumerate() {
        if index % 5 == 3 { drop(stream) } else { drop(read(stream).await) }
    }
    let snapshot = settle(&handle, |s| s.in_flight() == 0).await;
    assert!(tokio::task::spawn_blocking(|| thread.shutdown(Instant::now())).await.unwrap());
    (path, snapshot)
}

fn ask(file: &Path, step: Option<u64>, sequence: Option<u64>, format: Format) -> (String, Option<String>) {
    let mut answer = Vec::new();
    let settings = ReplaySettings { file: file.to_owned(), step, sequence, format };
    let result = replay::run(&settings, &mut answer);
    (String::from_utf8(answer).unwrap(), result.err().map(|error| error.to_string()))
}

#[tokio::test]
async fn a_recorded_run_is_planned_again_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    let (file, snapshot) = record(folder.path(), |runner| Box::new(runner), LIMITS).await;
    let (text, error) = ask(&file, None, None, Format::Text);
    assert_eq!(error, None, "{text}");
    assert!(text.contains("each planned again and found the same"), "{text}");
    assert!(!text.contains("has no end"), "{text}");

    let (json, _) = ask(&file, Some(1), Some(22), Format::Json);
    let answer: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(answer["summary"]["sequences"], 24);
    assert_eq!(answer["summary"]["generation_tokens"], snapshot.stats.generation_tokens);
    assert_eq!(answer["step"]["step"], 1);
    let last = answer["sequence"]["entries"].as_array().unwrap().last().unwrap();
    assert_eq!(last["what"], "ended", "{last}");

    let (text, _) = ask(&file, Some(1), None, Format::Text);
    assert!(text.contains("ran       0        prefill: 12 tokens of positions 0-11"), "{text}");
    let (text, _) = ask(&file, None, Some(22), Format::Text);
    assert!(text.contains("arrived with 34 prompt tokens, for at most 20 new ones"), "{text}");
    assert!(text.contains("was ended by its length"), "{text}");
}

#[tokio::test]
async fn steps_that_ran_ahead_are_planned_again_and_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let limits = RunnerLimits { max_in_flight: 2, feeds_sampled_tokens: true, ..LIMITS };
    let (file, _) = record(folder.path(), |runner| Box::new(StagedRunner::new(runner).1), limits).await;
    let (text, error) = ask(&file, None, None, Format::Text);
    assert_eq!(error, None, "{text}");
    assert!(text.contains("each planned again and found the same"), "{text}");
    let (text, _) = ask(&file, Some(2), None, Format::Text);
    assert!(text.contains("ahead: over the token that a step in flight samples"), "{text}");
}

#[tokio::test]
async fn choices_and_searches_are_planned_again_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("schedule.jsonl");
    let limits = RunnerLimits { num_blocks: 16, ..LIMITS };
    let config = EngineConfig { record_schedule: Some(path.clone()), ..config() };
    let (handle, thread) = Engine::spawn(Box::new(FakeRunner::new(limits, REPLY)), config).unwrap();
    let requests =
        [request(0..11, 3, 12), beams::search(0..7, 3, 9), beams::search(3..9, 2, 40), request(5..9, 2, 9)];
    let mut streams: Vec<_> = requests.into_iter().map(|request| handle.submit(request).unwrap()).collect();
    drop(streams.remove(2));
    for stream in streams.into_iter().flatten() {
        read(stream).await;
    }
    settle(&handle, |s| s.in_flight() == 0).await;
    assert!(tokio::task::spawn_blocking(|| thread.shutdown(Instant::now())).await.unwrap());
    let (text, error) = ask(&path, None, None, Format::Text);
    assert_eq!(error, None, "{text}");
    assert!(text.contains("each planned again and found the same"), "{text}");
    let (text, _) = ask(&path, None, Some(1), Format::Text);
    assert!(text.contains("took 10 tokens over from sequence 0"), "{text}");
}

#[tokio::test]
async fn what_is_not_in_the_record_is_said_to_be_absent() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = record(folder.path(), |runner| Box::new(runner), LIMITS).await;
    let error = ask(&file, Some(1 << 40), None, Format::Text).1.unwrap();
    assert!(error.contains("there is no step 1099511627776; the record has steps 1 to"), "{error}");
    let error = ask(&file, None, Some(24), Format::Text).1.unwrap();
    assert!(
        error.contains("there is no sequence 24; the record has 24 with numbers from 0 to 23"),
        "{error}"
    );
}

#[tokio::test]
async fn a_changed_or_cut_record_is_an_error_that_names_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = record(folder.path(), |runner| Box::new(runner), LIMITS).await;
    let text = std::fs::read_to_string(&file).unwrap();
    let error_of = |text: &str| {
        std::fs::write(&file, text).unwrap();
        ask(&file, None, None, Format::Text).1.unwrap_or_default()
    };
    let changed = text.replacen("\"new_blocks\":[0,", "\"new_blocks\":[1,", 1);
    assert_ne!(changed, text);
    assert!(error_of(&changed).contains("step 1 differs from the recorded one: `new_blocks` was"));

    let cut = &text[..text.len() - 3];
    assert!(error_of(cut).contains("is cut off"), "{}", error_of(cut));
    let whole_lines = text.strip_suffix("\"end\"\n").unwrap();
    assert_eq!(error_of(whole_lines), "");
    assert!(ask(&file, None, None, Format::Text).0.contains("has no end"));

    let line = text.lines().count() + 1;
    assert!(error_of(&format!("{text}{{\"grow\":1}}\n")).contains(&format!("line {line}: ")));
    assert!(error_of(&format!("{text}\"fail\"\n")).contains("that was never planned"));
}

#[test]
fn what_is_no_record_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let error = ask(&file, None, None, Format::Text).1.unwrap();
    assert!(error.contains("file: No such file"), "{error}");
    for text in ["", "\n", "GGUF", "{}\n", "[[[[[[[[", "{\"regatta_schedule\":2"] {
        std::fs::write(&file, text).unwrap();
        let error = ask(&file, None, None, Format::Text).1.unwrap();
        assert!(error.contains("not a recorded schedule"), "{text}: {error}");
    }
    std::fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
    assert!(ask(&file, None, None, Format::Text).1.unwrap().contains("longer than"));
}
