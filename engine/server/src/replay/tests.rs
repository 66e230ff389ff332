use std::time::Instant;

use regatta_core::beam::EarlyStopping;
use regatta_core::kv::KvGroups;
use regatta_core::runner::RunnerLimits;
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{SchedulerConfig, SchedulingPolicy};
use regatta_core::testing::{FakeRunner, Reply};

use super::*;
use crate::engine::{
    BeamOptions, ChoiceStream, Engine, EngineConfig, EngineHandle, EngineThread, Event, GenerateRequest,
};

/// More than any test waits for.
const ENDLESS: u32 = 100_000;

fn start(file: &std::path::Path) -> (EngineHandle, EngineThread) {
    let limits = RunnerLimits {
        block_size: 64,
        num_blocks: 8192,
        kv_groups: KvGroups::FULL,
        num_host_blocks: 0,
        max_num_seqs: 8,
        max_num_batched_tokens: 64,
        max_in_flight: 1,
        feeds_sampled_tokens: false,
    };
    let scheduler = SchedulerConfig {
        max_model_len: ENDLESS + 100,
        policy: SchedulingPolicy::Priority { ageing_steps: 1000 },
        ..SchedulerConfig::default()
    };
    let config =
        EngineConfig { scheduler, record_schedule: Some(file.to_owned()), ..EngineConfig::default() };
    Engine::spawn(Box::new(FakeRunner::new(limits, Reply::Hash { vocab_size: 1000 })), config).unwrap()
}

fn request(max_tokens: u32) -> GenerateRequest {
    GenerateRequest {
        request_id: String::new(),
        prompt: (0..9).collect(),
        n: 1,
        priority: 0,
        sampling: SamplingParams { max_tokens, ..SamplingParams::default() },
        beams: None,
        cache_salt: None,
    }
}

async fn begun(engine: &EngineHandle, request: GenerateRequest) -> ChoiceStream {
    let mut stream = engine.submit(request).unwrap().remove(0);
    while !matches!(stream.recv().await, Some(Event::Token { .. })) {}
    stream
}

fn answer(file: &std::path::Path, sequence: Option<u64>, format: Format) -> Result<String, String> {
    let mut out = Vec::new();
    let settings = ReplaySettings { file: file.to_owned(), step: None, sequence, format };
    run(&settings, &mut out).map_err(|error| error.to_string())?;
    Ok(String::from_utf8(out).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_says_what_ended_each_sequence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schedule.jsonl");
    let (engine, thread) = start(&file);
    let mut whole = begun(&engine, GenerateRequest { priority: -3, ..request(5) }).await;
    while whole.recv().await.is_some() {}
    begun(&engine, request(ENDLESS)).await.stop();
    drop(begun(&engine, request(ENDLESS)).await);
    let options = BeamOptions { length_penalty: 1.0, early_stopping: EarlyStopping::Never };
    for mut stream in engine.submit(GenerateRequest { n: 2, beams: Some(options), ..request(4) }).unwrap() {
        while stream.recv().await.is_some() {}
    }
    let late = begun(&engine, request(ENDLESS)).await;
    let soon = Instant::now();
    assert!(tokio::task::spawn_blocking(move || thread.shutdown(soon)).await.unwrap());
    drop(late);

    let summary = answer(&file, None, Format::Text).unwrap();
    for line in
        ["1 by its length", "1 by a stop string in its text", "1 by its client", "1 by the engine's shutdown"]
    {
        assert!(summary.contains(line), "{line}: {summary}");
    }
    let history = |id| answer(&file, Some(id), Format::Text).unwrap();
    assert!(history(0).contains("for at most 5 new ones, with priority -3"), "{}", history(0));
    assert!(history(1).contains("was ended by a stop string in its text"), "{}", history(1));
    assert!(history(2).contains("was ended by its client"), "{}", history(2));
    assert!(history(3).contains("was ended by its beam search"), "{}", history(3));
    // Two streams and two beams for each of four tokens have numbers; the second stream is no sequence.
    let error = answer(&file, Some(4), Format::Text).unwrap_err();
    assert!(
        error.contains("there is no sequence 4; the record has ") && error.contains("from 0 to 13"),
        "{error}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&answer(&file, Some(13), Format::Json).unwrap()).unwrap();
    assert_eq!(json["sequence"]["entries"].as_array().unwrap().last().unwrap()["by"], "shutdown");
    assert_eq!(
        (&json["summary"]["ended"]["stop_string"], &json["summary"]["ended"]["failed"]),
        (&1.into(), &0.into())
    );
}
