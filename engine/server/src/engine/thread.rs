//! The loop: drain, schedule, submit, settle, publish.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use regatta_core::event::Event;
use regatta_core::plan::StepOutput;
use regatta_core::replay::Observation;
use regatta_core::runner::{ModelRunner, RunnerLimits};
use regatta_core::scheduler::{Scheduler, SchedulerConfig, SchedulingPolicy, Update};
use regatta_core::sequence::SequenceId;
use tokio::sync::mpsc;

use super::config::EngineConfig;
use super::costs::CostMeter;
use super::flight::{Flights, Landed};
use super::handle::EngineHandle;
use super::inbox::{Arrivals, Inbox, QueueLimits, Role, Submission};
use super::search::Searches;
use super::snapshot::{EngineSnapshot, EngineState};
use crate::kv_events::KvEventSender;
use crate::record::Recording;

/// The engine thread's own state.
pub struct Engine {
    flights: Flights,
    scheduler: Scheduler,
    inbox: Arc<Inbox>,
    streams: HashMap<SequenceId, mpsc::Sender<Event>>,
    searches: Searches,
    arrivals: Arrivals,
    output: StepOutput,
    updates: Vec<Update>,
    recording: Recording,
    costs: CostMeter,
    runner_limits: RunnerLimits,
    kv_events: Option<KvEventSender>,
}

impl Engine {
    /// Starts the engine thread over `runner`.
    pub fn spawn(
        runner: Box<dyn ModelRunner>,
        config: EngineConfig,
    ) -> std::io::Result<(EngineHandle, EngineThread)> {
        let recording =
            Recording::start(config.record_schedule.as_deref(), &config.scheduler, runner.limits())?;
        let has_priorities = config.scheduler.policy != SchedulingPolicy::Fcfs;
        let runner_limits = runner.limits();
        let scheduler_config = SchedulerConfig { kv_events: config.kv_events.is_some(), ..config.scheduler };
        let scheduler = Scheduler::new(scheduler_config, runner_limits);
        let limits = scheduler.limits();
        let queue =
            QueueLimits { max_requests: config.max_queued_requests, max_tokens: config.max_queued_tokens };
        let inbox = Arc::new(Inbox::new(queue, figures(&scheduler, Instant::now())));
        let mut engine = Self {
            flights: Flights::new(runner),
            scheduler,
            inbox: Arc::clone(&inbox),
            streams: HashMap::new(),
            searches: Searches::default(),
            arrivals: Arrivals::default(),
            output: StepOutput::default(),
            updates: Vec::new(),
            recording,
            costs: CostMeter::default(),
            runner_limits,
            kv_events: config.kv_events,
        };
        let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(move || {
            // A panic here is a defect of the bookkeeping itself: the guard in `close` still ends every stream.
            let result = catch_unwind(AssertUnwindSafe(|| engine.run()));
            engine.close(result.is_err());
        })?;
        Ok((
            EngineHandle::new(Arc::clone(&inbox), limits, has_priorities),
            EngineThread { inbox, thread: Some(thread) },
        ))
    }

    fn run(&mut self) {
        match CostMeter::probe(self.flights.runner()) {
            Ok(costs) => self.costs = costs,
            Err(error) => {
                tracing::warn!(%error, "swapping cannot be measured; preempted work is computed again")
            }
        }
        loop {
            let idle = !self.scheduler.has_work();
            if idle {
                self.check_idle();
            }
            self.inbox.receive(&mut self.arrivals, idle);
            self.admit_and_cancel();
            if let Some(deadline) = self.arrivals.shutdown
                && (!self.scheduler.has_work() || Instant::now() >= deadline)
            {
                // What is under way cannot be aborted before it ends.
                while !self.flights.is_empty() {
                    self.settle();
                }
                return;
            }
            // The next step is planned while the last one runs, where the runner takes both.
            if !self.submit() {
                self.settle();
            }
            while self.flights.is_full() {
                self.settle();
            }
            self.search();
            self.tell_kv_events();
            // The figures first: whoever has an answer finds them up to date.
            self.publish();
            self.deliver();
        }
    }

    /// Plans and submits a step; `false` when there is nothing to plan.
    fn submit(&mut self) -> bool {
        let mut plan = self.flights.take_plan();
        if !self.scheduler.schedule(&mut plan) {
            self.recording.see(|| Observation::Nothing);
            self.flights.return_plan(plan);
            return false;
        }
        self.recording.see(|| Observation::planned(&plan, self.scheduler.decisions()));
        self.flights.submit(plan);
        true
    }

    fn admit_and_cancel(&mut self) {
        if std::mem::take(&mut self.arrivals.reset_prefix_cache) {
            self.scheduler.reset_prefix_cache();
            self.recording.see(|| Observation::Reset);
        }
        let mut submissions = std::mem::take(&mut self.arrivals.submissions);
        submissions.drain(..).for_each(|submission| self.admit(submission));
        self.arrivals.submissions = submissions;
        let (scheduler, updates, recording) = (&mut self.scheduler, &mut self.updates, &mut self.recording);
        for (id, reason) in self.arrivals.cancelled.drain(..) {
            if !self.searches.cancel(id, scheduler, updates, recording) {
                scheduler.cancel(id, updates);
                recording.see(|| Observation::Cancelled(id, reason));
            }
        }
    }

    fn admit(&mut self, Submission { sequence, sender, role }: Submission) {
        let id = sequence.id;
        self.streams.insert(id, sender);
        match role {
            Role::Generates => {}
            Role::Searches(search) => self.searches.start(&sequence, search),
            Role::Listens => return,
        }
        self.recording.see(|| Observation::Added(sequence.clone()));
        if let Err(error) = self.scheduler.add(sequence) {
            self.updates.push(Update { id, event: Event::Failed { reason: error.to_string() } });
        }
    }

    /// Lets beam searches go on that have all they wait for.
    fn search(&mut self) {
        self.searches.advance(&mut self.scheduler, &mut self.updates, &mut self.recording);
    }

    /// Takes in the oldest step under way, if there is one.
    fn settle(&mut self) {
        let Some(Landed { plan, result, time }) = self.flights.land(&mut self.output) else { return };
        match result {
            Ok(()) => {
                self.inbox.step_tokens.observe(plan.token_ids.len() as f64);
                let first = self.updates.len();
                self.scheduler.settle(&plan, &mut self.output, &mut self.updates);
                self.recording.see(|| Observation::settled(&self.output, &self.updates[first..]));
                if let Some(costs) = self.costs.step(&plan, time) {
                    self.scheduler.set_preemption_costs(costs);
                    self.recording.see(|| Observation::Costs(costs));
                }
            }
            Err(error) => {
                tracing::error!(step = plan.step, %error, "step failed; its sequences end with an error");
                self.scheduler.fail(&plan, &error.to_string(), &mut self.updates);
                self.recording.see(|| Observation::Failed);
            }
        }
        self.flights.return_plan(plan);
    }

    fn tell_kv_events(&mut self) {
        if let Some(sender) = &mut self.kv_events {
            let mut events = Vec::new();
            self.scheduler.take_kv_events(&mut events);
            if !events.is_empty() {
                sender.send(&self.runner_limits, events);
            }
        }
    }

    fn deliver(&mut self) {
        for Update { id, event } in self.updates.drain(..) {
            // A full channel cannot be: its capacity covers every event. A closed one has been cancelled.
            if event.is_terminal() {
                let _ = self.streams.remove(&id).map(|sender| sender.try_send(event));
            } else {
                let _ = self.streams.get(&id).map(|sender| sender.try_send(event));
            }
        }
    }

    /// Nobody holds a block while nobody runs; anything else is a leak, and worth a line in the log.
    fn check_idle(&self) {
        let blocks = self.scheduler.stats().blocks;
        if blocks.in_use != 0 || blocks.free + blocks.cached != blocks.total {
            tracing::error!(?blocks, "KV blocks are lost: no sequence runs");
        }
        debug_assert_eq!(self.scheduler.audit(), Ok(()));
    }

    fn publish(&self) {
        self.inbox.publish(figures(&self.scheduler, Instant::now()));
    }

    /// Ends every stream that is left, and admission with it.
    fn close(&mut self, panicked: bool) {
        let late = self.inbox.stop();
        if panicked {
            tracing::error!("the engine thread panicked; this process must be restarted");
            self.streams.clear();
            return;
        }
        late.into_iter().for_each(|submission| self.admit(submission));
        self.scheduler.abort_all(&mut self.updates);
        self.recording.see(|| Observation::Aborted);
        self.search();
        self.publish();
        self.deliver();
    }
}

fn figures(scheduler: &Scheduler, now: Instant) -> EngineSnapshot {
    EngineSnapshot { state: EngineState::Running, stats: scheduler.stats(), last_progress: now }
}

/// How long the end of the thread is waited for after the deadline: the length of a slow step.
const GRACE: Duration = Duration::from_secs(10);

/// The thread's owner. Dropping it stops the engine as an immediate [`EngineThread::shutdown`] does, without waiting.
#[derive(Debug)]
pub struct EngineThread {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

impl EngineThread {
    /// Stops admission, lets what is admitted finish until `deadline`, aborts the rest, and waits for the thread's
    /// end. Blocks. `false` when the thread is stuck in a step and had to be left behind.
    pub fn shutdown(mut self, deadline: Instant) -> bool {
        self.inbox.shut_down(deadline);
        let stopped = self.inbox.wait_until_stopped(deadline + GRACE);
        if let Some(thread) = self.thread.take().filter(|_| stopped) {
            // `close` has already logged a panic and ended every stream.
            let _ = thread.join();
        }
        stopped
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.inbox.shut_down(Instant::now());
    }
}
