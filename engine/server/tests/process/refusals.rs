use std::{net::TcpListener, process::Command};

use crate::engine::serve;

/// Runs a command line that must be refused and returns what it says.
fn refusal(flags: &[&str], env: &[(&str, &str)]) -> String {
    let output = serve(flags).envs(env.iter().copied()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{text}");
    text
}

#[test]
fn an_accelerator_without_a_backend_is_refused() {
    let text = refusal(&[], &[("REGATTA_ACCELERATOR", "nvidia.com/gpu=1")]);
    assert!(text.contains("this pod was given an accelerator (nvidia.com/gpu=1)"), "{text}");
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let text = refusal(&["--internal-port", &port], &[]);
    assert!(text.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{text}");
    assert!(
        text.contains("stop the process that uses the port, or choose another with --internal-port"),
        "{text}"
    );
}

#[test]
fn what_another_start_cannot_mend_ends_with_a_code_of_its_own() {
    let code = |flags: &[&str]| serve(flags).output().unwrap().status.code();
    assert_eq!(code(&["--block-size", "3"]), Some(2));
    assert_eq!(code(&["--max-model-len", "1m"]), Some(2));
    let mut missing = Command::new(env!("CARGO_BIN_EXE_regatta-engine"));
    missing.args(["serve", "/no/model.gguf", "--host", "127.0.0.1", "--port", "0"]);
    assert_eq!(missing.output().unwrap().status.code(), Some(2));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    assert_eq!(code(&["--internal-port", &port]), Some(1));
}

#[test]
fn a_log_filter_that_is_none_is_said() {
    let text = refusal(&["--max-model-len", "1m"], &[("REGATTA_LOG", "inof")]);
    assert!(text.contains("WARN") && text.contains("REGATTA_LOG: `inof` is no level"), "{text}");
    assert!(text.contains("ERROR"), "the log goes on: {text}");
}

#[test]
fn a_name_of_a_model_hub_is_answered_with_how_to_get_the_model() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_regatta-engine"));
    command.args(["serve", "no-such-org/no-such-model", "--host", "127.0.0.1", "--port", "0"]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("models are not downloaded") && text.contains("regatta-engine fetch"), "{text}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/azure-llm-2023-conv-200.csv");
    let model = crate::engine::model();
    let commands = [
        vec!["inspect", model.to_str().unwrap()],
        vec!["simulate", trace, "--cost", "step=1", "--requests", "9"],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_regatta-engine"));
        let output = command.args(&arguments).stdout(writer).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && text.is_empty(), "{arguments:?}: {text}");
    }
}

#[test]
fn standard_input_is_named() {
    for subcommand in [&["replay", "-"][..], &["simulate", "-", "--cost", "step=1"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_regatta-engine"));
        let output = command.args(subcommand).stdin(std::process::Stdio::null()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains("standard input: "), "{text}");
    }
}

#[test]
fn a_checksum_for_a_folder_is_refused() {
    let text = refusal(&["--model-sha256", &"0".repeat(64)], &[]);
    assert!(text.contains("--model-sha256 is for a single file"), "{text}");
}

#[test]
fn a_length_that_the_model_or_the_memory_cannot_meet_is_refused() {
    let text = refusal(&["--max-model-len", "1m"], &[]);
    assert!(text.contains("1000000") && text.contains("2048"), "{text}");
    let text = refusal(&["--max-model-len", "2K", "--num-gpu-blocks-override", "10"], &[]);
    assert!(text.contains("lower --max-model-len to at most 160"), "{text}");
    assert!(text.contains("128 blocks (--num-gpu-blocks-override)"), "{text}");
    let text = refusal(&["--num-gpu-blocks-override", "4294967295"], &[]);
    assert!(text.contains("bytes of memory are left: lower --num-gpu-blocks-override"), "{text}");
}

#[test]
fn an_unknown_instruction_set_is_refused_with_the_known_ones() {
    let text = refusal(&[], &[("REGATTA_ISA", "mmx")]);
    assert!(text.contains("mmx") && text.contains("portable"), "{text}");
}

#[test]
fn a_flag_that_is_not_honoured_is_refused() {
    let text = refusal(&["--tensor-parallel-size", "2"], &[]);
    assert!(text.contains("--tensor-parallel-size is not supported"), "{text}");
}
