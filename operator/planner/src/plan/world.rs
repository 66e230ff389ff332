//! Whole rollouts in memory: random events, an operator that may stop after any step, and rules that hold after
//! each step it takes.

use std::{collections::HashSet, time::Duration};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::{Action, Desired, Mode, plan, rollout::lacks_capacity};
use crate::{
    ObservedPod,
    names::MAX_GENERATED_NAME,
    observed::{Drain, EngineState, EngineView, Restarts},
};

const UID: &str = "service-uid";
const OTHER: &str = "another-uid";
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
const NO_ROOM: &str = "0/1 nodes are available: 1 Insufficient memory.";

#[derive(Clone, Debug)]
enum Event {
    Tick(u8),
    Schedule,
    BecomeReady(usize),
    ReportReady,
    Fail(usize),
    DeletedByOthers(usize),
    Vanish,
    EngineDies(usize),
    Work(usize, u8),
    Silence(usize),
    Spec(u8),
    Scale(u32),
    Mode(Mode),
    /// A reconcile that stops after so many steps.
    Reconcile(usize),
}

#[derive(Debug)]
struct World {
    now: Timestamp,
    pods: Vec<ObservedPod>,
    capacity: usize,
    revision: String,
    replicas: u32,
    mode: Mode,
    num_made: u32,
}

impl World {
    fn new(capacity: usize, replicas: u32) -> Self {
        let foreign =
            ObservedPod { owner_uid: Some(OTHER.into()), routable: true, ..pod("svc-r000000000-0", 0) };
        Self {
            now: Timestamp::UNIX_EPOCH,
            pods: vec![foreign],
            capacity,
            revision: "r000000000".into(),
            replicas,
            mode: Mode::Run,
            num_made: 1,
        }
    }

    fn desired(&self) -> Desired<'_> {
        Desired {
            service: "svc",
            uid: UID,
            revision: &self.revision,
            replicas: self.replicas,
            mode: self.mode,
            drain_timeout: DRAIN_TIMEOUT,
        }
    }

    fn ours(&mut self) -> Vec<&mut ObservedPod> {
        self.pods.iter_mut().filter(|p| p.owner_uid.as_deref() == Some(UID)).collect()
    }

    fn pick(&mut self, index: usize) -> Option<&mut ObservedPod> {
        let mut ours = self.ours();
        let count = ours.len();
        (count > 0).then(|| ours.swap_remove(index % count))
    }

    fn routable(&self) -> usize {
        self.pods.iter().filter(|p| p.owner_uid.as_deref() == Some(UID) && p.takes_requests()).count()
    }

    fn apply(&mut self, event: &Event) {
        let now = self.now;
        match event {
            Event::Tick(seconds) => self.tick(*seconds),
            Event::Schedule => self.schedule(),
            Event::ReportReady => self.report_ready(),
            Event::BecomeReady(i) => self.with(*i, |p| {
                if p.engine_running && !p.terminating && !p.finished {
                    p.containers_ready = true;
                    p.engine = EngineView::State(EngineState { ready: true, ..EngineState::default() });
                }
            }),
            Event::Fail(i) => self.with(*i, |p| {
                if !p.terminating && !p.finished {
                    (p.finished, p.engine_running, p.containers_ready, p.ended) =
                        (true, false, false, Some(now));
                }
            }),
            Event::DeletedByOthers(i) => self.with(*i, |p| {
                if !p.terminating {
                    (p.terminating, p.ended) = (true, Some(now));
                }
            }),
            Event::Vanish => self.pods.retain(|p| !p.terminating),
            Event::EngineDies(i) => {
                self.with(*i, |p| (p.engine_running, p.containers_ready) = (false, false))
            }
            Event::Work(i, n) => self.with(*i, |p| {
                if let EngineView::State(state) = &mut p.engine {
                    state.in_flight = u64::from(*n);
                }
            }),
            Event::Silence(i) => self.with(*i, |p| p.engine = EngineView::Silent),
            Event::Spec(n) => self.revision = format!("r{n:09}"),
            Event::Scale(n) => self.replicas = *n,
            Event::Mode(mode) => self.mode = *mode,
            Event::Reconcile(steps) => _ = self.reconcile(*steps),
        }
        self.look();
    }

    fn with(&mut self, index: usize, change: impl FnOnce(&mut ObservedPod)) {
        if let Some(pod) = self.pick(index) {
            change(pod);
        }
    }

    fn tick(&mut self, seconds: u8) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds.into())).expect("in range");
    }

    /// The kubelet's turn. Only here does a pod become Ready: some time after its gate is set.
    fn report_ready(&mut self) {
        for pod in self.ours() {
            pod.ready = pod.routable && pod.containers_ready;
        }
    }

    fn schedule(&mut self) {
        for i in 0..self.pods.len() {
            let used = self.pods.iter().filter(|p| p.engine_running).count();
            let pod = &mut self.pods[i];
            if pod.owner_uid.as_deref() != Some(UID) || pod.finished || pod.terminating || pod.engine_running
            {
                continue;
            }
            pod.engine_running = used < self.capacity;
            pod.unschedulable = (used >= self.capacity).then(|| NO_ROOM.to_owned());
        }
    }

    /// What the controller's polling adds: since when a draining engine is idle.
    fn look(&mut self) {
        let now = self.now;
        for pod in self.ours() {
            pod.ready &= pod.containers_ready;
            let idle = matches!(&pod.engine, EngineView::State(s) if s.in_flight == 0);
            pod.idle_since = (idle && pod.drain.is_some()).then(|| pod.idle_since.unwrap_or(now));
        }
    }

    /// Takes up to `max` steps of one plan and checks each; returns whether any changed a pod.
    fn reconcile(&mut self, max: usize) -> bool {
        let plan = plan(&self.desired(), &self.pods, self.now);
        let changes = plan.changes();
        for step in plan.steps.into_iter().take(max) {
            let before = self.routable();
            self.take(&step.action);
            self.check_routable(before, &step.reason);
        }
        changes
    }

    fn take(&mut self, action: &Action) {
        let now = self.now;
        match action {
            Action::Wait { until } => assert!(*until > now, "waits for the past"),
            Action::Create { name, attempt } => {
                assert!(
                    name.len() <= MAX_GENERATED_NAME && self.pods.iter().all(|p| p.name != *name),
                    "{name}"
                );
                let made = ObservedPod { revision: self.revision.clone(), ..pod(name, self.num_made) };
                self.num_made += 1;
                self.pods.push(ObservedPod { created: now, attempt: *attempt, ..made });
            }
            Action::MarkDraining { name, uid } => {
                let pod = self.own(name, uid);
                assert!(!pod.terminating && pod.drain.is_none_or(|d| d.since.is_none()));
                pod.drain = Some(Drain { since: Some(now) });
            }
            Action::SetRoutable { name, uid } => {
                let pod = self.own(name, uid);
                assert!(pod.containers_ready && matches!(pod.engine, EngineView::State(_)));
                pod.routable = true;
            }
            Action::Delete { name, uid } => {
                let mode = self.mode;
                let pod = self.own(name, uid);
                let idle =
                    pod.idle_since.is_some_and(|i| now.duration_since(i) >= SignedDuration::from_secs(1));
                let timeout = SignedDuration::try_from(DRAIN_TIMEOUT).expect("in range");
                let late = |d: Drain| d.since.is_some_and(|s| now.duration_since(s) >= timeout);
                let silent = mode == Mode::Deleting && pod.engine == EngineView::Silent;
                let drained = pod.drain.is_some_and(|d| idle || late(d) || silent || !pod.engine_running);
                assert!(pod.finished || !pod.routable || drained, "deleted without a drain: {pod:?}");
                (pod.terminating, pod.ended) = (true, Some(now));
            }
        }
        self.look();
    }

    fn own(&mut self, name: &str, uid: &str) -> &mut ObservedPod {
        let pod =
            self.pods.iter_mut().find(|p| p.name == name && p.uid == uid).expect("steps name what exists");
        assert_eq!(pod.owner_uid.as_deref(), Some(UID), "a step on a pod of others");
        pod
    }

    /// Whoever lowers the number of routable replicas below what is wanted does so only to make room, one at a time.
    fn check_routable(&self, before: usize, reason: &str) {
        let (after, wanted) = (self.routable(), self.replicas as usize);
        if self.mode != Mode::Run || after >= before || after >= wanted {
            return;
        }
        assert!(after + 1 >= wanted, "{after} of {wanted} routable after: {reason}");
        let stuck = |p: &ObservedPod| p.unschedulable.as_deref().is_some_and(lacks_capacity);
        assert!(self.pods.iter().any(stuck), "gave up a replica without need: {reason}");
    }

    /// Kubelet, engines and operator all do their part until nothing changes any more.
    fn settle(&mut self) {
        for _ in 0..400 {
            let changed = self.reconcile(usize::MAX);
            self.pods.retain(|p| !p.terminating);
            self.schedule();
            for pod in self.ours().into_iter().filter(|p| p.engine_running) {
                pod.containers_ready = true;
                pod.engine = EngineView::State(EngineState { ready: true, ..EngineState::default() });
            }
            self.report_ready();
            self.look();
            self.tick(1);
            let waits = plan(&self.desired(), &self.pods, self.now).steps;
            if !changed && waits.is_empty() {
                return;
            }
            if let Some(until) = plan(&self.desired(), &self.pods, self.now).wake() {
                self.now = self.now.max(until);
            }
        }
        panic!("does not settle: {self:#?}");
    }
}

fn pod(name: &str, number: u32) -> ObservedPod {
    ObservedPod {
        name: name.into(),
        uid: format!("pod-{number}"),
        owner_uid: Some(UID.into()),
        revision: String::new(),
        attempt: 0,
        created: Timestamp::UNIX_EPOCH,
        ended: None,
        finished: false,
        terminating: false,
        drain: None,
        scheduled: false,
        setup_since: None,
        initialized: false,
        engine_running: false,
        containers_ready: false,
        ready: false,
        routable: false,
        address: Some("10.0.0.1".into()),
        unschedulable: None,
        trouble: None,
        engine: EngineView::Unasked,
        restarts: Restarts::default(),
        idle_since: None,
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let index = 0..8_usize;
    let event = prop_oneof![
        3 => (0..90_u8).prop_map(Event::Tick),
        4 => Just(Event::Schedule),
        4 => index.clone().prop_map(Event::BecomeReady),
        4 => Just(Event::ReportReady),
        1 => index.clone().prop_map(Event::Fail),
        1 => index.clone().prop_map(Event::DeletedByOthers),
        2 => Just(Event::Vanish),
        1 => index.clone().prop_map(Event::EngineDies),
        2 => (index.clone(), 0..4_u8).prop_map(|(i, n)| Event::Work(i, n)),
        1 => index.prop_map(Event::Silence),
        1 => (0..3_u8).prop_map(Event::Spec),
        1 => (0..5_u32).prop_map(Event::Scale),
        1 => prop_oneof![Just(Mode::Run), Just(Mode::Paused), Just(Mode::Stopped), Just(Mode::Run)].prop_map(Event::Mode),
        8 => prop_oneof![Just(usize::MAX), 0..4_usize].prop_map(Event::Reconcile),
    ];
    proptest::collection::vec(event, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_promises_and_settles_on_the_spec(
        events in events(),
        spare in 0..2_usize,
        replicas in 0..5_u32,
        end in 0..5_u32,
    ) {
        let mut world = World::new(5 + spare, replicas);
        for event in &events {
            world.apply(event);
        }
        (world.mode, world.replicas) = (Mode::Run, end);
        world.settle();

        let ours: Vec<_> = world.pods.iter().filter(|p| p.owner_uid.as_deref() == Some(UID)).collect();
        prop_assert_eq!(ours.len(), end as usize);
        prop_assert!(ours.iter().all(|p| p.takes_requests() && p.revision == world.revision));
        let names: HashSet<_> = world.pods.iter().map(|p| &p.name).collect();
        prop_assert_eq!(names.len(), world.pods.len());

        world.mode = Mode::Deleting;
        world.settle();
        prop_assert!(world.pods.iter().all(|p| p.owner_uid.as_deref() == Some(OTHER)));
    }

    #[test]
    fn a_full_cluster_replaces_in_place(replicas in 1..5_u32) {
        let mut world = World::new(replicas as usize, replicas);
        world.settle();
        world.apply(&Event::Spec(2));
        world.settle();
        prop_assert!(world.pods.iter().skip(1).all(|p| p.revision == world.revision));
    }
}

#[test]
fn a_rollout_with_room_never_has_fewer_replicas_than_wanted() {
    let mut world = World::new(4, 3);
    world.settle();
    world.apply(&Event::Spec(1));
    for _ in 0..60 {
        for event in [Event::Reconcile(usize::MAX), Event::Schedule, Event::Vanish, Event::Tick(1)] {
            world.apply(&event);
        }
        (0..8).for_each(|i| world.apply(&Event::BecomeReady(i)));
        world.apply(&Event::ReportReady);
        assert!(world.routable() >= 3);
    }
    assert!(world.pods.iter().skip(1).all(|p| p.revision == "r000000001"));
}
