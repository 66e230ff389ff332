use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::observed::{Drain, EngineState, EngineView, KvState, Restarts};

const NOW: i64 = 1_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).expect("in range")
}

fn pod(name: &str, revision: &str) -> ObservedPod {
    ObservedPod {
        name: name.into(),
        uid: format!("uid-{name}"),
        owner_uid: Some("me".into()),
        revision: revision.into(),
        attempt: 0,
        created: at(-3600),
        ended: None,
        finished: false,
        terminating: false,
        drain: None,
        scheduled: true,
        setup_since: None,
        initialized: true,
        engine_running: true,
        containers_ready: true,
        ready: true,
        routable: true,
        address: Some("10.0.0.1".into()),
        unschedulable: None,
        trouble: None,
        engine: busy(0, 0),
        restarts: Restarts::default(),
        idle_since: None,
    }
}

fn busy(in_flight: u64, cached: u64) -> EngineView {
    EngineView::State(EngineState { ready: true, in_flight, kv: KvState { cached } })
}

fn starting(name: &str, revision: &str) -> ObservedPod {
    ObservedPod { containers_ready: false, ready: false, routable: false, ..pod(name, revision) }
}

fn draining(name: &str, since: i64) -> ObservedPod {
    ObservedPod { drain: Some(Drain { since: Some(at(since)) }), ..pod(name, "new") }
}

fn steps(replicas: u32, mode: Mode, pods: &[ObservedPod]) -> Vec<String> {
    let drain_timeout = Duration::from_secs(60);
    let desired = Desired { service: "svc", uid: "me", revision: "new", replicas, mode, drain_timeout };
    let text = |s: Step| match s.action {
        Action::Create { name, attempt: 0 } => format!("create {name}"),
        Action::Create { name, attempt } => format!("create {name} attempt {attempt}"),
        Action::MarkDraining { name, .. } => format!("drain {name}"),
        Action::Delete { name, .. } => format!("delete {name}"),
        Action::SetRoutable { name, .. } => format!("open {name}"),
        Action::Wait { until } => format!("wait {}", until.duration_since(at(0)).as_secs()),
    };
    plan(&desired, pods, at(0)).steps.into_iter().map(text).collect()
}

fn run(replicas: u32, pods: &[ObservedPod]) -> Vec<String> {
    steps(replicas, Mode::Run, pods)
}

const NOTHING: [&str; 0] = [];

#[test]
fn missing_replicas_are_made_under_free_names() {
    assert_eq!(run(3, &[pod("svc-new-1", "new")]), ["create svc-new-0", "create svc-new-2"]);
}

#[test]
fn a_settled_service_is_left_alone() {
    assert_eq!(run(1, &[pod("a", "new")]), NOTHING);
    assert_eq!(run(0, &[]), NOTHING);
}

#[test]
fn a_pod_is_let_in_when_its_engine_says_so() {
    let pod = ObservedPod { routable: false, ..pod("a", "new") };
    assert_eq!(run(1, std::slice::from_ref(&pod)), ["open a"]);
    let silent = ObservedPod { engine: EngineView::Silent, ..pod };
    assert_eq!(run(1, &[silent]), ["wait 1"]);
}

#[test]
fn an_old_replica_stays_until_gateways_see_the_new_one_ready() {
    let old = pod("old", "before");
    let let_in = ObservedPod { ready: false, ..pod("svc-new-0", "new") };
    assert_eq!(run(1, &[old.clone(), let_in]), NOTHING);
    assert_eq!(run(1, &[old, pod("svc-new-0", "new")]), ["drain old"]);
}

#[test]
fn a_replica_that_stopped_answering_is_drained_and_replaced() {
    let old = ObservedPod { ready: false, ..pod("old", "before") };
    assert_eq!(run(1, &[old]), ["drain old", "create svc-new-0"]);
}

#[test]
fn the_least_loaded_goes_first_then_the_coldest() {
    let loaded =
        |name: &str, in_flight, cached| ObservedPod { engine: busy(in_flight, cached), ..pod(name, "new") };
    let pods = [loaded("busy", 3, 0), loaded("warm", 1, 9), loaded("cold", 1, 2)];
    assert_eq!(run(2, &pods), ["drain cold"]);
    assert_eq!(run(1, &pods), ["drain cold", "drain warm"]);
}

#[test]
fn a_replica_that_takes_no_requests_goes_before_any_other() {
    assert_eq!(run(1, &[pod("a", "new"), starting("b", "new")]), ["delete b"]);
}

#[test]
fn a_changed_spec_surges_by_one() {
    let old = [pod("a", "old"), pod("b", "old")];
    assert_eq!(run(2, &old), ["create svc-new-0"]);
    let mut pods = old.to_vec();
    pods.push(starting("svc-new-0", "new"));
    assert_eq!(run(2, &pods), NOTHING);
    pods[2] = pod("svc-new-0", "new");
    assert_eq!(run(2, &pods), ["drain a"]);
}

#[test]
fn the_next_replica_waits_for_the_drain_of_the_last() {
    let pods = [draining("a", -1), pod("b", "old"), pod("svc-new-0", "new")];
    assert_eq!(run(2, &pods), ["wait 1"]);
}

#[test]
fn a_new_pod_that_does_not_fit_gets_the_place_of_an_old_one() {
    let no_room = |message: &str| ObservedPod {
        unschedulable: Some(message.into()),
        scheduled: false,
        initialized: false,
        engine_running: false,
        ..starting("n", "new")
    };
    let full = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.";
    assert_eq!(run(1, &[pod("a", "old"), no_room(full)]), ["drain a"]);
    let no_node = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.";
    assert_eq!(run(1, &[pod("a", "old"), no_room(no_node)]), NOTHING);
}

#[test]
fn an_old_replica_that_never_came_up_does_not_block_a_rollout() {
    assert_eq!(run(1, &[starting("a", "old")]), ["delete a", "create svc-new-0"]);
}

#[test]
fn a_drained_pod_is_deleted_and_a_busy_one_is_waited_for() {
    let idle = |since| ObservedPod { idle_since: Some(at(since)), ..draining("a", -10) };
    assert_eq!(run(0, &[draining("a", -10)]), ["wait 1"]);
    assert_eq!(run(0, &[idle(0)]), ["wait 1"]);
    assert_eq!(run(0, &[idle(-1)]), ["delete a"]);
    assert_eq!(run(0, &[idle(-20)]), ["wait 1"], "idle before the mark proves nothing");
    assert_eq!(run(0, &[draining("a", -60)]), ["delete a"]);
    let dead = ObservedPod { engine_running: false, ..draining("a", 0) };
    assert_eq!(run(0, &[dead]), ["delete a"]);
}

#[test]
fn a_pod_marked_by_a_person_drains_and_is_replaced() {
    let marked = ObservedPod { drain: Some(Drain { since: None }), ..pod("a", "new") };
    assert_eq!(run(1, &[marked]), ["drain a", "create svc-new-0"]);
}

#[test]
fn a_stopped_service_drains_everything() {
    let pods = [pod("a", "new"), starting("b", "old")];
    assert_eq!(steps(2, Mode::Stopped, &pods), ["drain a", "delete b"]);
}

#[test]
fn a_paused_service_is_left_alone() {
    let pods = [pod("a", "old"), draining("b", -60)];
    assert_eq!(steps(5, Mode::Paused, &pods), NOTHING);
}

#[test]
fn a_deleted_service_does_not_wait_for_a_silent_engine() {
    let silent = ObservedPod { engine: EngineView::Silent, ..draining("a", -1) };
    assert_eq!(steps(1, Mode::Deleting, std::slice::from_ref(&silent)), ["delete a"]);
    assert_eq!(steps(1, Mode::Stopped, &[silent]), ["wait 1"]);
}

#[test]
fn failures_are_replaced_with_growing_pauses() {
    let failed = |attempt, ended| ObservedPod {
        finished: true,
        attempt,
        created: at(-300),
        ended: Some(at(ended)),
        ..pod("svc-new-0", "new")
    };
    assert_eq!(run(1, &[failed(0, 0)]), ["create svc-new-1 attempt 1"]);
    assert_eq!(run(1, &[failed(1, -3)]), ["wait 7"]);
    assert_eq!(run(1, &[failed(2, -3)]), ["wait 17"]);
    assert_eq!(run(1, &[failed(30, -3)]), ["wait 297"]);
    assert_eq!(run(1, &[failed(1, -10)]), ["create svc-new-1 attempt 2"]);
    assert_eq!(run(1, &[failed(0, 0), starting("svc-new-1", "new")]), ["delete svc-new-0"]);
}

#[test]
fn a_replica_that_lived_long_starts_anew_without_a_pause() {
    let failed = ObservedPod { finished: true, attempt: 7, ended: Some(at(0)), ..pod("svc-new-0", "new") };
    assert_eq!(run(1, &[failed]), ["create svc-new-1 attempt 1"]);
}

#[test]
fn a_pod_deleted_by_others_is_replaced_while_it_ends() {
    let going = ObservedPod { terminating: true, ended: Some(at(0)), ..pod("svc-new-0", "new") };
    assert_eq!(run(1, &[going]), ["create svc-new-1 attempt 1"]);
}

#[test]
fn pods_of_others_keep_their_names_and_nothing_else() {
    let other = ObservedPod { owner_uid: Some("you".into()), ..pod("svc-new-0", "old") };
    assert_eq!(run(1, &[other]), ["create svc-new-1"]);
}

#[test]
fn engines_are_asked_only_when_the_answer_matters() {
    let asked = |replicas, pods: &[ObservedPod]| questions(replicas, pods).len();
    assert_eq!(asked(2, &[pod("a", "new"), pod("b", "new")]), 0);
    assert_eq!(asked(1, &[pod("a", "new"), pod("b", "new")]), 2);
    assert_eq!(asked(2, &[pod("a", "new"), pod("b", "old")]), 2);
    assert_eq!(asked(1, &[ObservedPod { routable: false, ..pod("a", "new") }]), 1);
    assert_eq!(asked(1, &[draining("a", 0)]), 1);
    assert_eq!(asked(0, &[starting("a", "new"), ObservedPod { address: None, ..pod("b", "new") }]), 1);
}

#[test]
fn a_plan_wakes_at_the_first_of_its_waits() {
    let wait = |s| Step { action: Action::Wait { until: at(s) }, reason: String::new() };
    let plan = Plan { steps: vec![wait(5), wait(2)] };
    assert_eq!((plan.wake(), plan.changes()), (Some(at(2)), false));
}
