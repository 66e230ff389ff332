use super::{settings::KvCacheSize, *};

fn serve(flags: &[&str]) -> Result<ServeSettings, String> {
    let argv = ["regatta-engine", "serve", "/models/m.gguf"].iter().chain(flags);
    match parse(argv) {
        Ok(Command::Serve(settings)) => Ok(*settings),
        Ok(other) => panic!("not serve: {other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn the_operators_command_line_is_understood() {
    let sha = "ab".repeat(32);
    let line = format!(
        "--served-model-name a b --host 0.0.0.0 --port 8000 --internal-port 8001 --pod-info /etc/regatta/pod \
         --shutdown-timeout 45 --model-sha256 {sha} --max-model-len 4K --max-num-seqs 8"
    );
    let settings = serve(&line.split_whitespace().collect::<Vec<_>>()).unwrap();
    assert_eq!(settings.served_names, ["a", "b"]);
    assert_eq!(settings.address.to_string(), "0.0.0.0:8000");
    assert_eq!(settings.internal_address.unwrap().port(), 8001);
    assert_eq!(settings.shutdown_timeout.as_secs(), 45);
    assert_eq!(settings.scheduler.max_model_len, MaxModelLen::Tokens(4096));
    assert_eq!(settings.model_sha256, Some(sha));
}

#[test]
fn the_path_is_the_name_when_none_is_given() {
    let settings = serve(&[]).unwrap();
    assert_eq!(settings.served_names, ["/models/m.gguf"]);
    assert_eq!(settings.kv_cache, KvCacheSize::Share(0.5));
}

#[test]
fn flags_of_vllm_that_are_not_honoured_are_refused_with_the_reason() {
    let text = serve(&["--tensor-parallel-size", "2"]).unwrap_err();
    assert!(text.contains("--tensor-parallel-size is not supported: a replica is one process"), "{text}");
    let text = serve(&["--cpu-offload-gb=1"]).unwrap_err();
    assert!(text.contains("nothing is offloaded"), "{text}");
    let text = serve(&["--disable-log-requests"]).unwrap_err();
    assert!(
        text.contains("--disable-log-requests is not supported") && text.contains("REGATTA_LOG"),
        "{text}"
    );
    let text = serve(&["--no-enable-chunked-prefill"]).unwrap_err();
    assert!(text.contains("--no-enable-chunked-prefill is not supported: prefill is always"), "{text}");
    for short in ["-tp", "-q"] {
        let text = serve(&[short, "2"]).unwrap_err();
        assert!(text.contains("is not supported: "), "{short}: {text}");
    }
}

#[test]
fn unknown_flags_are_refused_by_name() {
    let text = serve(&["--no-such-flag", "1"]).unwrap_err();
    assert!(text.contains("--no-such-flag"), "{text}");
}

#[test]
fn values_out_of_range_are_refused_with_the_range() {
    let cases: &[(&[&str], &str)] = &[
        (&["--max-num-seqs", "0"], "between 1 and"),
        (&["--block-size", "12"], "power of two"),
        (&["--max-logprobs", "21"], "between 0 and 20"),
        (&["--scheduling-policy", "lifo"], "fcfs, priority"),
        (&["--logprobs-mode", "raw"], "raw_logprobs, processed_logprobs, raw_logits, processed_logits"),
        (&["--num-gpu-blocks-override", "0"], "at least 1"),
        (&["--kv-cache-memory-bytes", "0"], "leave it out"),
        (&["--max-model-len", "1"], "between 2 and"),
        (&["--max-num-queued-tokens", "0"], "between 1 and"),
        (&["--model-sha256", "abc"], "64 hexadecimal digits"),
        (&["--port", "9000", "--internal-port", "9000"], "different ports"),
        (&["--threads", "0"], "between 1 and"),
        (&["--api-key", ""], "visible ASCII"),
        (&["--gpu-memory-utilization", "1.5"], "at most 1"),
        (&["--gpu-memory-utilization", "nan"], "above 0"),
        (&["--kv-cache-memory-bytes", "1G", "--num-gpu-blocks-override", "4"], "cannot be used with"),
    ];
    for (flags, wanted) in cases {
        let text = serve(flags).unwrap_err();
        assert!(text.contains(wanted), "{flags:?}: {text}");
    }
}

#[test]
fn log_probabilities_are_raw_unless_another_kind_is_named() {
    use regatta_core::sampling::LogprobsMode;
    assert_eq!(serve(&[]).unwrap().logprobs_mode, LogprobsMode::RawLogprobs);
    let mode = |name| serve(&["--logprobs-mode", name]).unwrap().logprobs_mode;
    assert_eq!(mode("processed_logprobs"), LogprobsMode::ProcessedLogprobs);
    assert_eq!(mode("raw_logits"), LogprobsMode::RawLogits);
    assert_eq!(mode("processed_logits"), LogprobsMode::ProcessedLogits);
}

#[test]
fn the_later_of_two_opposite_switches_holds() {
    let caching = |flags: &[&str]| serve(flags).unwrap().scheduler.enable_prefix_caching;
    assert!(caching(&[]) && caching(&["--enable-prefix-caching"]));
    assert!(!caching(&["--no-enable-prefix-caching"]));
    assert!(caching(&["--no-enable-prefix-caching", "--enable-prefix-caching"]));
    assert!(!caching(&["--enable-prefix-caching", "--no-enable-prefix-caching"]));
}

#[test]
fn a_key_is_never_shown() {
    let settings = serve(&["--api-key", "secret-one", "secret-two"]).unwrap();
    assert_eq!(settings.api_keys.iter().count(), 2);
    assert!(!format!("{settings:?}").contains("secret"));
}

#[test]
fn the_list_of_flags_says_what_each_takes() {
    let flags = serve_flags();
    let named = |name: &str| flags.iter().find(|flag| flag.name == name).unwrap();
    assert!(named("--served-model-name").multiple);
    assert_eq!(named("--port").default.as_deref(), Some("8000"));
    assert_eq!(named("--api-key").env.as_deref(), Some("VLLM_API_KEY"));
    assert_eq!(named("--scheduling-policy").values, ["fcfs", "priority"]);
    assert!(named("--port").values.is_empty() && named("--enable-prefix-caching").values.is_empty());
    assert!(flags.iter().all(|flag| !flag.help.is_empty()));
}

#[test]
fn scheduling_is_as_vllm_schedules_unless_told_otherwise() {
    use regatta_core::scheduler::{PreemptionMode, SchedulingPolicy};
    let scheduler = |flags: &[&str]| serve(flags).unwrap().scheduler;
    let default = scheduler(&[]);
    assert_eq!((default.policy, default.preemption_mode), (SchedulingPolicy::Fcfs, PreemptionMode::ByCost));
    assert!(default.reserve_full_isl && default.max_num_partial_prefills == 1);
    let line = "--scheduling-policy priority --priority-ageing-steps 7 --preemption-mode swap \
                --no-scheduler-reserve-full-isl --max-num-partial-prefills 3 --swap-space 0.5";
    let told = serve(&line.split_whitespace().collect::<Vec<_>>()).unwrap();
    assert_eq!(told.swap_bytes, 1 << 29);
    let told = told.scheduler;
    assert_eq!(told.policy, SchedulingPolicy::Priority { ageing_steps: 7 });
    assert_eq!(told.preemption_mode, PreemptionMode::Swap);
    assert!(!told.reserve_full_isl && told.max_num_partial_prefills == 3);
    assert!(serve(&["--priority-ageing-steps", "7"]).unwrap_err().contains("--scheduling-policy"));
    let events = ["--no-enable-prefix-caching", "--kv-events-config", r#"{"enable_kv_cache_events": true}"#];
    assert!(serve(&events).unwrap_err().contains("--kv-events-config"));
    assert!(serve(&["--preemption-mode", "swap"]).unwrap_err().contains("--swap-space"));
    for space in ["-1", "nan", "1e9"] {
        let text = serve(&[&format!("--swap-space={space}")]).unwrap_err();
        assert!(text.contains("--swap-space"), "{text}");
    }
}

#[test]
fn a_simulation_is_not_compared_with_a_model_that_is_not_there() {
    for flags in [&["--check"][..], &["--threads", "2"]] {
        let argv = ["regatta-engine", "simulate", "trace.csv", "--cost", "step=1"].iter().chain(flags);
        let text = parse(argv).unwrap_err().to_string();
        assert!(text.contains("--calibrate"), "{text}");
    }
}

#[test]
fn a_model_that_a_list_has_swallowed_is_missed_with_the_right_order() {
    for list in ["--served-model-name", "--api-key"] {
        let text = parse(["regatta-engine", "serve", list, "a", "/models/m.gguf"]).unwrap_err().to_string();
        assert!(text.contains(&format!("regatta-engine serve MODEL {list} ...")), "{text}");
    }
    let text = parse(["regatta-engine", "serve", "--port", "1"]).unwrap_err().to_string();
    assert!(text.contains("<MODEL>"), "{text}");
}

#[test]
fn a_simulation_that_cannot_say_anything_is_refused_with_what_it_lacks() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "--calibrate MODEL"),
        (&["--cost", "step=1", "--requests", "0"], "--requests 0"),
        (&["--cost", "step=1", "--preemption-mode", "swap"], "--num-host-blocks"),
        (&["--cost", "step=1", "--num-shared-prefixes", "2"], "--shared-prefix-len"),
        (
            &["--cost", "step=1", "--shared-prefix-len", "9", "--num-shared-prefixes", "0"],
            "--num-shared-prefixes 0",
        ),
    ];
    for (flags, wanted) in cases {
        let argv = ["regatta-engine", "simulate", "trace.csv"].iter().chain(*flags);
        let text = parse(argv).unwrap_err().to_string();
        assert!(text.contains(wanted), "{flags:?}: {text}");
    }
}
