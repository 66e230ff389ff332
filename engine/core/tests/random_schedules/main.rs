//! Random arrivals, cancellations, failures and pool sizes: after every operation the bookkeeping agrees with
//! itself, every sequence ends in exactly one terminal event, and its tokens are those it would get alone.
//!
//! `REGATTA_SOAK_CASES` sets the number of cases; proptest prints the seed of a failing one, and the test how many
//! operations were checked.

mod mirror;
mod operations;
mod order;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use operations::{Operation, Scenario, scenario};
use proptest::prelude::*;
use world::World;

/// Operations after each of which everything was checked.
static NUM_OPERATIONS: AtomicU64 = AtomicU64::new(0);

/// Notes one operation more.
pub(crate) fn count_operation() {
    let num = NUM_OPERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
    if num.is_multiple_of(1_000_000) {
        eprintln!("{num} operations checked");
    }
}

fn config() -> ProptestConfig {
    let cases = std::env::var("REGATTA_SOAK_CASES").ok().map(|text| text.parse().expect("a number of cases"));
    let cases = cases.unwrap_or(if cfg!(miri) { 8 } else { 4096 });
    ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_schedule_keeps_the_books_and_gives_every_sequence_its_own_tokens(scenario in scenario()) {
        let mut world = World::new(&scenario);
        for operation in &scenario.operations {
            world.apply(operation);
        }
        world.finish();
    }
}
