//! The program as a person meets it: what it prints, and how it fails.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

const MANIFEST: &str = "\
apiVersion: regatta.dev/v1alpha1
kind: LLMService
metadata: {name: demo}
spec: {model: {uri: 'pvc://models/m.gguf'}}
";

fn regatta(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_regatta"));
    command.args(args);
    command
}

fn local(folder: &Path, manifest: &str, more: &[&str]) -> Output {
    let file = folder.join("service.yaml");
    fs::write(&file, manifest).expect("written");
    regatta(&["local", "-f", file.to_str().expect("a path")]).args(more).output().expect("it runs")
}

fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_printed_crd_is_the_one_in_the_library() {
    let output = regatta(&["crd"]).output().expect("it runs");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), regatta_crds::yaml());
}

#[test]
fn a_claim_without_a_folder_is_named_with_its_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = local(folder.path(), MANIFEST, &["--port", "0", "--engine", env!("CARGO_BIN_EXE_regatta")]);
    assert!(refusal(&output).contains("--pvc models=FOLDER"));
}

#[test]
fn a_missing_model_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let claim = format!("models={}", folder.path().display());
    let more = ["--port", "0", "--engine", env!("CARGO_BIN_EXE_regatta"), "--pvc", &claim];
    assert!(refusal(&local(folder.path(), MANIFEST, &more)).contains("m.gguf"));
}

#[test]
fn a_port_in_use_is_named_with_its_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let output =
        local(folder.path(), MANIFEST, &["--port", &port, "--engine", env!("CARGO_BIN_EXE_regatta")]);
    let text = refusal(&output);
    assert!(text.contains(&port) && text.contains("--port"), "{text}");
}

#[test]
fn a_missing_engine_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = local(folder.path(), MANIFEST, &["--engine", "/nowhere/regatta-engine"]);
    assert!(refusal(&output).contains("/nowhere/regatta-engine"));
}

/// `false` is a program that is no engine: it never becomes ready.
#[test]
fn engines_that_never_start_end_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("m.gguf"), "").expect("written");
    let claim = format!("models={}", folder.path().display());
    let output = local(folder.path(), MANIFEST, &["--port", "0", "--engine", "/bin/false", "--pvc", &claim]);
    let text = refusal(&output);
    assert!(
        text.contains("giving up after 3 starts") && text.contains("no engine could be started"),
        "{text}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_child_dies_with_its_parent() {
    let script = r#""$0" exec --parent $$ -- sleep 60 & echo $!; wait"#;
    let mut parent = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_regatta")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut child = String::new();
    BufReader::new(parent.stdout.take().expect("piped")).read_line(&mut child).expect("a process id");
    let deadline = Instant::now() + Duration::from_secs(20);
    let comm = format!("/proc/{}/comm", child.trim());
    while fs::read_to_string(&comm).expect("the child lives").trim() != "sleep" {
        assert!(Instant::now() < deadline, "the child never became the program");
        std::thread::sleep(Duration::from_millis(10));
    }
    parent.kill().expect("killed");
    parent.wait().expect("ended");
    let stat = format!("/proc/{}/stat", child.trim());
    // Whoever inherits the child may be slow to take note of its end: a zombie is dead, too.
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < deadline, "the child outlived its parent");
        std::thread::sleep(Duration::from_millis(10));
    }
}
