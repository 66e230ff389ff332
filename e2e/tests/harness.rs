//! The command itself: what it leaves on the machine, however it ends. Needs root, like the command.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use regatta_e2e::wait_for;

const CLUSTER: &str = env!("CARGO_BIN_EXE_regatta-cluster");
const START_DEADLINE: Duration = Duration::from_secs(180);
const END_DEADLINE: Duration = Duration::from_secs(30);

/// Runs where `up` takes a fresh network for the host's. Everything that a cluster could leave is listed before and
/// after; HARM happens in between.
const UP_AND_DOWN: &str = r#"
list() {
    sort /proc/mounts
    ip -br link | awk '{print $1}'
    ip route
    nft list ruleset
    cat /proc/sys/net/ipv4/ip_forward /proc/sys/vm/overcommit_memory /proc/sys/kernel/panic
    # This shell is the first process here and takes in no zombies, which are no processes any more.
    ps -e -o stat=,args= | grep -v '^Z' | grep -E 'kube|etcd|containerd|coredns|pause' | grep -v grep || true
}
set -eu
list > "$STATE/before"
"$CLUSTER" --state "$STATE" up
id=$(sed 's/.*"id":"\([0-9a-f]*\)".*/\1/' "$STATE/up/spec.json")
"$CLUSTER" --state "$STATE" up | grep "already up"
HARM
"$CLUSTER" --state "$STATE" down
list > "$STATE/after"
find /sys/fs/cgroup -name "regatta-$id-*" >> "$STATE/after"
diff "$STATE/before" "$STATE/after"
test ! -e "$STATE/up"
test ! -e "$STATE/kubeconfig"
"#;

#[test]
fn up_twice_says_so_and_down_leaves_no_trace() {
    up_and_down("");
}

#[test]
fn down_removes_what_a_killed_cluster_left() {
    up_and_down("kill -9 $(cat $STATE/up/pid)");
}

fn up_and_down(harm: &str) {
    let state = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"])
        .arg(UP_AND_DOWN.replace("HARM", harm))
        .env("CLUSTER", CLUSTER)
        .env("STATE", state.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[tokio::test]
async fn a_run_killed_with_kill_9_leaves_nothing_behind() {
    let state = tempfile::tempdir().unwrap();
    let namespace_file = state.path().join("namespace");
    let script = format!(
        "readlink /proc/self/ns/pid > {}.new && mv {0}.new {0} && sleep 300",
        namespace_file.display()
    );
    let mut run =
        cluster(state.path()).args(["run", "--size", "node", "--", "sh", "-c", &script]).spawn().unwrap();
    let namespace = wait_for("the command to start", START_DEADLINE, async || {
        fs::read_to_string(&namespace_file).map_err(|error| error.to_string())
    })
    .await;
    assert!(!processes_in(namespace.trim()).is_empty());

    run.kill().unwrap();
    run.wait().unwrap();
    wait_for("all processes to end", END_DEADLINE, async || match processes_in(namespace.trim()) {
        none if none.is_empty() => Ok(()),
        some => Err(some),
    })
    .await;

    let runs = state.path().join("run");
    let id = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().file_name().into_string().unwrap();
    let next = cluster(state.path()).args(["run", "--size", "api", "--", "true"]).output().unwrap();
    assert!(next.status.success(), "{}", text(&next));
    assert_eq!(fs::read_dir(&runs).unwrap().count(), 0);
    assert_eq!(cgroups_of(&id), "");
}

#[test]
fn the_exit_code_of_the_command_is_passed_on_and_logs_of_a_failure_are_kept() {
    let state = tempfile::tempdir().unwrap();
    let output =
        cluster(state.path()).args(["run", "--size", "api", "--", "sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output));
    let logs = fs::read_dir(state.path().join("logs")).unwrap().next().unwrap().unwrap().path();
    assert!(logs.join("kube-apiserver.log").is_file());
    assert_eq!(fs::read_dir(state.path().join("run")).unwrap().count(), 0);
}

#[test]
fn a_command_that_does_not_exist_is_named() {
    let state = tempfile::tempdir().unwrap();
    let output =
        cluster(state.path()).args(["run", "--size", "api", "--", "no-such-command"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("cannot run no-such-command"), "{}", text(&output));
}

fn cluster(state: &Path) -> Command {
    let mut command = Command::new(CLUSTER);
    command.arg("--state").arg(state);
    command
}

/// Processes whose PID namespace is `namespace`, as their ids here.
fn processes_in(namespace: &str) -> Vec<String> {
    let link = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let all = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    all.filter(|pid| link(pid).is_some_and(|is| is.as_os_str() == namespace)).collect()
}

fn cgroups_of(id: &str) -> String {
    let name = format!("regatta-{id}-*");
    let output = Command::new("find").args(["/sys/fs/cgroup", "-name", &name]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn text(output: &Output) -> String {
    let signal = output.status.signal().map(|signal| format!("signal {signal}\n")).unwrap_or_default();
    format!("{signal}{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
