use serde_json::json;

use super::*;
use crate::{
    build::fixtures,
    observed::{Cause, Drain, EngineView, Restarts, Trouble},
};

struct Scene {
    service: LLMService,
    mode: Mode,
    pods: Vec<ObservedPod>,
    problems: Vec<Problem>,
    conflicts: Vec<Conflict>,
    now: i64,
}

impl Scene {
    fn new(replicas: u32, pods: &[ObservedPod]) -> Self {
        let service = fixtures::object(json!({"model": {"uri": "pvc://c/m"}, "replicas": replicas}));
        Self { service, mode: Mode::Run, pods: pods.to_vec(), problems: vec![], conflicts: vec![], now: 0 }
    }

    fn status(&self) -> LLMServiceStatus {
        status(&Situation {
            service: &self.service,
            mode: self.mode,
            revision: Some("new"),
            pods: &self.pods,
            problems: &self.problems,
            conflicts: &self.conflicts,
            gateway: Some("http://gateway.regatta-system.svc"),
            now: Timestamp::from_second(self.now).expect("in range"),
        })
    }

    /// `Type=Status/Reason` of the condition `type_`, and its message.
    fn read(&self, type_: &str) -> (String, String) {
        let status = self.status();
        let c = status.conditions.iter().flatten().find(|c| c.type_ == type_).expect("every type").clone();
        (format!("{}/{}", c.status, c.reason), c.message)
    }

    fn is(&self, type_: &str, expected: &str) {
        assert_eq!(self.read(type_).0, expected, "{type_}: {}", self.read(type_).1);
    }
}

fn pod(name: &str, revision: &str) -> ObservedPod {
    ObservedPod {
        name: name.into(),
        uid: format!("uid-{name}"),
        owner_uid: Some("service-uid".into()),
        revision: revision.into(),
        attempt: 0,
        created: Timestamp::UNIX_EPOCH,
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
        address: None,
        unschedulable: None,
        trouble: None,
        engine: EngineView::Unasked,
        restarts: Restarts::default(),
        idle_since: None,
    }
}

fn starting(name: &str) -> ObservedPod {
    ObservedPod { containers_ready: false, ready: false, routable: false, ..pod(name, "new") }
}

fn failing(cause: Cause, message: &str) -> ObservedPod {
    ObservedPod { trouble: Some(Trouble { cause, message: message.into(), passing: false }), ..starting("a") }
}

#[test]
fn a_service_whose_replicas_all_take_requests_is_ready() {
    let scene = Scene::new(2, &[pod("a", "new"), pod("b", "new")]);
    scene.is("Ready", "True/ReplicasRoutable");
    scene.is("Available", "True/ReplicasRoutable");
    scene.is("Reconciling", "False/Done");
    scene.is("Stalled", "False/NotStalled");
    scene.is("SpecValid", "True/SpecValid");
    insta::assert_yaml_snapshot!(scene.status());
}

#[test]
fn starting_replicas_are_named() {
    let scene = Scene::new(2, &[pod("a", "new"), starting("b")]);
    scene.is("Ready", "False/ReplicasStarting");
    scene.is("Reconciling", "True/ReplicasStarting");
    scene.is("Available", "True/ReplicasRoutable");
    assert!(
        scene.read("Ready").1
            == "1 of 2 replicas up to date and taking requests; waiting for b (loads the model)",
        "{}",
        scene.read("Ready").1
    );
}

#[test]
fn replicas_of_an_older_revision_never_make_a_service_ready() {
    let scene = Scene::new(1, &[pod("a", "old")]);
    scene.is("Ready", "False/RollingOut");
    scene.is("Available", "True/ReplicasRoutable");
    let both = Scene::new(1, &[pod("a", "old"), pod("b", "new")]);
    both.is("Ready", "False/RollingOut");
}

#[test]
fn a_draining_replica_keeps_a_service_at_work() {
    let leaving = ObservedPod { drain: Some(Drain { since: None }), ..pod("b", "new") };
    let scene = Scene::new(1, &[pod("a", "new"), leaving]);
    scene.is("Ready", "False/Draining");
    assert_eq!((scene.status().replicas, scene.status().draining_replicas), (Some(2), Some(1)));
}

#[test]
fn each_cause_of_a_stall_is_named() {
    let cases = [
        (Cause::ImagePullFailed, "no such image", "True/ImagePullFailed"),
        (Cause::ChecksumMismatch, "sha256 differs", "True/ChecksumMismatch"),
        (Cause::ModelFetchFailed, "404", "True/ModelFetchFailed"),
        (Cause::CrashLoop, "unknown architecture", "True/CrashLoop"),
        (Cause::VolumeMountFailed, "secret", "True/VolumeMountFailed"),
        (Cause::PodSandboxFailed, "network", "True/PodSandboxFailed"),
        (Cause::OutOfMemory, "killed", "True/OutOfMemory"),
        (Cause::ContainerConfigInvalid, "secret", "True/ContainerConfigInvalid"),
    ];
    for (cause, message, expected) in cases {
        let scene = Scene::new(1, &[failing(cause, message)]);
        scene.is("Stalled", expected);
        scene.is("Reconciling", "False/Stalled");
        assert_eq!(scene.read("Ready"), (expected.replace("True", "False"), format!("pod a: {message}")));
    }
}

#[test]
fn a_replica_that_starts_again_by_itself_does_not_stall_and_tells_why() {
    let trouble = Trouble { cause: Cause::OutOfMemory, message: "killed".into(), passing: true };
    let scene = Scene::new(1, &[ObservedPod { trouble: Some(trouble), ..starting("a") }]);
    scene.is("Stalled", "False/NotStalled");
    scene.is("Ready", "False/ReplicasStarting");
    assert!(scene.read("Ready").1.ends_with("waiting for a (starts again: killed)"));
}

#[test]
fn trouble_of_an_old_replica_is_on_its_way_out() {
    let old = ObservedPod { revision: "old".into(), ..failing(Cause::CrashLoop, "x") };
    Scene::new(1, &[old, starting("b")]).is("Stalled", "False/NotStalled");
}

#[test]
fn a_pod_that_fits_nowhere_stalls_unless_room_is_being_made() {
    let stuck = ObservedPod { unschedulable: Some("0/1 nodes".into()), ..starting("a") };
    let later = |scene: Scene| Scene { now: 60, ..scene };
    later(Scene::new(1, std::slice::from_ref(&stuck))).is("Stalled", "True/Unschedulable");
    let leaving = ObservedPod { drain: Some(Drain { since: None }), ..pod("b", "old") };
    later(Scene::new(1, &[stuck, leaving])).is("Stalled", "False/NotStalled");
}

#[test]
fn a_pod_that_no_node_takes_yet_is_starting() {
    let unbound = ObservedPod { unschedulable: Some("unbound claims".into()), ..starting("a") };
    Scene::new(1, std::slice::from_ref(&unbound)).is("Stalled", "False/NotStalled");
    Scene::new(1, &[unbound]).is("Ready", "False/ReplicasStarting");
}

#[test]
fn problems_outside_pods_are_told() {
    let cases = [
        (Problem::ClaimMissing("models".into()), "Stalled", "True/VolumeClaimMissing", "'models'"),
        (
            Problem::NameTaken { kind: "Service", name: "x".into() },
            "Stalled",
            "True/NameTaken",
            "Service 'x'",
        ),
        (Problem::PodRefused("quota".into()), "Stalled", "True/PodRefused", "quota"),
        (Problem::SpecInvalid("no uri".into()), "SpecValid", "False/SpecInvalid", "no uri"),
        (Problem::PodTemplateRefused("bad".into()), "SpecValid", "False/PodTemplateRefused", "bad"),
        (Problem::ApplyFailed("timeout".into()), "Reconciling", "True/ApplyFailed", "timeout"),
    ];
    for (problem, type_, expected, words) in cases {
        let mut scene = Scene::new(1, &[starting("a")]);
        scene.problems.push(problem);
        scene.is(type_, expected);
        assert!(scene.read(type_).1.contains(words), "{}", scene.read(type_).1);
        assert!(scene.read("Ready").0.starts_with("False/"));
    }
}

#[test]
fn a_lost_name_names_its_owner() {
    let mut scene = Scene::new(1, &[pod("a", "new")]);
    scene.conflicts.push(Conflict {
        served_name: "m".into(),
        owner_namespace: "ns".into(),
        owner_service: "older".into(),
    });
    scene.is("Stalled", "True/ServedNameTaken");
    assert!(scene.read("Ready").1.contains("'m' belongs to the older service ns/older"));
}

#[test]
fn stopped_and_paused_say_so() {
    let mut scene = Scene::new(1, &[]);
    scene.mode = Mode::Stopped;
    scene.is("Ready", "True/Stopped");
    scene.is("Available", "False/Stopped");
    scene.mode = Mode::Paused;
    scene.is("Ready", "False/Paused");
    scene.is("Reconciling", "False/Paused");
    Scene::new(0, &[]).is("Ready", "True/ScaledToZero");
}

#[test]
fn a_transition_time_changes_only_with_its_condition() {
    let mut scene = Scene::new(1, &[starting("a")]);
    let first = scene.status();
    (scene.service.status, scene.now) = (Some(first.clone()), 60);
    assert_eq!(scene.status(), first, "nothing changed but the time");
    scene.pods = vec![pod("a", "new")];
    let time = |status: &LLMServiceStatus, type_: &str| {
        let found = status.conditions.iter().flatten().find(|c| c.type_ == type_);
        found.expect("every type").last_transition_time.0.as_second()
    };
    let second = scene.status();
    assert_eq!((time(&second, "Ready"), time(&second, "SpecValid")), (60, 0));
}
