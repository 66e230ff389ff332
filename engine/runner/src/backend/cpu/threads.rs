//! The worker threads: one job at a time, its items claimed one by one, so that a slow core takes fewer.
//!
//! A job is published by opening a new *round*. Workers join an open round, claim items until none is left, and
//! leave; the caller works too, then closes the round and waits only for those who joined. A worker that sleeps
//! through a round costs nothing. The state is one word, so that joining and closing cannot race:
//!
//! ```text
//!   63            32 31     30          0
//!  +----------------+------+-------------+
//!  |  round number  | open | joined      |
//!  +----------------+------+-------------+
//! ```

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const OPEN: u64 = 1 << 31;
const ROUND: u64 = 1 << 32;
const JOINED: u64 = OPEN - 1;

/// How long a worker spins for the next job before it parks: the steps of a model follow each other closely, and a
/// wake-up costs more than most of them.
const SPIN: Duration = Duration::from_micros(100);

/// What items of a job are done with; lives on the caller's stack while the round is open or has workers.
type Job<'a> = &'a (dyn Fn(usize) + Sync);

struct Shared {
    state: AtomicU64,
    shutdown: AtomicBool,
    /// Valid from the opening of a round until its last worker has left.
    job: UnsafeCell<Option<(Job<'static>, usize)>>,
    next_item: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    parked: Vec<AtomicBool>,
}

// SAFETY: `job` is written only while no round is open and nobody is joined, and read only by those who joined.
unsafe impl Sync for Shared {}
// SAFETY: as above; the job itself is `Sync`.
unsafe impl Send for Shared {}

/// A pool of worker threads; the calling thread is one of them.
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held by the caller whose job runs.
    caller: Mutex<()>,
}

impl Pool {
    /// A pool of `threads` threads, the caller's included; at least 1.
    pub(super) fn new(threads: usize) -> std::io::Result<Self> {
        let workers = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            shutdown: AtomicBool::new(false),
            job: UnsafeCell::new(None),
            next_item: AtomicUsize::new(0),
            panic: Mutex::new(None),
            parked: (0..workers).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut pool = Self { shared, workers: Vec::with_capacity(workers), caller: Mutex::new(()) };
        for index in 0..workers {
            let shared = Arc::clone(&pool.shared);
            let worker = std::thread::Builder::new().name(format!("cpu-{}", index + 1));
            pool.workers.push(worker.spawn(move || work(&shared, index))?);
        }
        Ok(pool)
    }

    /// How many threads work on a job.
    pub(super) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `job` with each of `0..items`, on all threads, and returns when all are done. A panic in an item is
    /// raised again here once the others have stopped. Within a job, or while another caller's runs, the items run
    /// on the calling thread alone.
    pub(super) fn run(&self, items: usize, job: Job<'_>) {
        let alone = self.workers.is_empty() || items <= 1;
        let guard = if alone { None } else { self.caller.try_lock().ok() };
        if guard.is_none() {
            return (0..items).for_each(job);
        }
        self.open(items, job);
        let mine = catch_unwind(AssertUnwindSafe(|| claim(&self.shared, items, job)));
        self.close();
        let theirs = self.shared.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        drop(guard);
        if let Some(panic) = mine.err().or(theirs) {
            resume_unwind(panic);
        }
    }

    fn open(&self, items: usize, job: Job<'_>) {
        // SAFETY: only the lifetime changes; `close` returns after the last use.
        let job = unsafe { std::mem::transmute::<Job<'_>, Job<'static>>(job) };
        // SAFETY: no round is open and nobody is joined: `close` saw to it, and `caller` is held.
        unsafe { *self.shared.job.get() = Some((job, items)) };
        self.shared.next_item.store(0, Ordering::Relaxed);
        let round = self.shared.state.load(Ordering::Relaxed) & !(ROUND - 1);
        // Sequentially consistent with the `parked` flags: either the worker sees the round, or we see it parked.
        self.shared.state.store(round.wrapping_add(ROUND) | OPEN, Ordering::SeqCst);
        for (worker, parked) in self.workers.iter().zip(&self.shared.parked) {
            if parked.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
    }

    fn close(&self) {
        let mut state = self.shared.state.fetch_and(!OPEN, Ordering::AcqRel) & !OPEN;
        let mut spins = 0u32;
        while state & JOINED != 0 {
            spins += 1;
            // A worker that lost its core in the middle of an item may need ours.
            if spins.is_multiple_of(1 << 12) {
                std::thread::yield_now()
            } else {
                std::hint::spin_loop()
            }
            state = self.shared.state.load(Ordering::Acquire);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.shutdown.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches its panics, so there is nothing to learn from the result.
            let _ = worker.join();
        }
    }
}

/// Claims items until none is left.
fn claim(shared: &Shared, items: usize, job: Job<'_>) {
    loop {
        let item = shared.next_item.fetch_add(1, Ordering::Relaxed);
        if item >= items {
            return;
        }
        job(item);
    }
}

/// A worker's life.
fn work(shared: &Shared, index: usize) {
    let mut seen = 0;
    while let Some(round) = next_round(shared, index, seen) {
        seen = round;
        // SAFETY: joined, so the round's caller keeps the job alive until we leave.
        let job = unsafe { *shared.job.get() };
        if let Some((job, items)) = job
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| claim(shared, items, job)))
        {
            // The others need not go on.
            shared.next_item.store(items, Ordering::Relaxed);
            *shared.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(panic);
        }
        shared.state.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Joins the next open round after `seen` and gives its number; nothing at shutdown.
fn next_round(shared: &Shared, index: usize, seen: u64) -> Option<u64> {
    let mut idle_since = Instant::now();
    let mut spins = 0u32;
    loop {
        if shared.shutdown.load(Ordering::Relaxed) {
            return None;
        }
        let state = shared.state.load(Ordering::Acquire);
        if state & OPEN != 0 && state >> 32 != seen {
            let joined = shared.state.compare_exchange(state, state + 1, Ordering::AcqRel, Ordering::Relaxed);
            if joined.is_ok() {
                return Some(state >> 32);
            }
            continue;
        }
        std::hint::spin_loop();
        spins += 1;
        if spins.is_multiple_of(32) && idle_since.elapsed() > SPIN {
            park(shared, index, seen);
            idle_since = Instant::now();
        }
    }
}

/// Sleeps until a round opens or the pool shuts down.
fn park(shared: &Shared, index: usize, seen: u64) {
    shared.parked[index].store(true, Ordering::SeqCst);
    loop {
        let state = shared.state.load(Ordering::SeqCst);
        if (state & OPEN != 0 && state >> 32 != seen) || shared.shutdown.load(Ordering::SeqCst) {
            break;
        }
        std::thread::park();
    }
    shared.parked[index].store(false, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_runs_exactly_once() {
        for threads in [1, 2, 3, 7] {
            let pool = Pool::new(threads).unwrap();
            for items in [0, 1, 2, 5, 100, 1000] {
                let counts: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..20 {
                    pool.run(items, &|i| {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    });
                }
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 20));
            }
        }
    }

    #[test]
    fn a_panic_in_an_item_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(3).unwrap();
        for bad in [0, 50, 99] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(100, &|i| assert_ne!(i, bad, "a bad item"));
            }));
            assert!(result.is_err());
            let done = AtomicUsize::new(0);
            pool.run(100, &|_| {
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.into_inner(), 100);
        }
    }

    #[test]
    fn a_job_within_a_job_and_two_callers_at_once_both_finish() {
        let pool = Pool::new(2).unwrap();
        let done = AtomicUsize::new(0);
        let outer = || {
            for _ in 0..50 {
                pool.run(4, &|_| {
                    pool.run(4, &|_| {
                        done.fetch_add(1, Ordering::Relaxed);
                    })
                });
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(outer);
            scope.spawn(outer);
        });
        assert_eq!(done.into_inner(), 2 * 50 * 16);
    }

    #[test]
    fn parked_workers_wake_for_the_next_job_and_for_the_end() {
        let pool = Pool::new(2).unwrap();
        let all_parked = |pool: &Pool| pool.shared.parked.iter().all(|parked| parked.load(Ordering::SeqCst));
        for _ in 0..3 {
            while !all_parked(&pool) {
                std::thread::yield_now();
            }
            // Two items that wait for each other need two threads.
            let barrier = std::sync::Barrier::new(2);
            pool.run(2, &|_| {
                barrier.wait();
            });
        }
        while !all_parked(&pool) {
            std::thread::yield_now();
        }
        drop(pool);
    }
}
