//! The memory that all engines of a run share. An engine by itself takes half of what is free for its KV blocks;
//! several that start at once would each count the same memory.

use super::resolve::Run;

/// What all engines together may take of the memory beside the weights.
const SHARE: f64 = 0.5;
/// Arguments that size an engine's KV cache.
const SIZES: [&str; 3] = ["gpu-memory-utilization", "kv-cache-memory-bytes", "num-gpu-blocks-override"];

/// Gives each engine of several its part, unless its service says how much it takes.
pub(crate) fn share(runs: &mut [Run]) {
    let engines: u32 = runs.iter().map(|run| run.replicas).sum();
    if engines < 2 {
        return;
    }
    for run in runs.iter_mut().filter(|run| !says_its_size(run)) {
        run.kv_share = Some(SHARE / f64::from(engines));
    }
}

fn says_its_size(run: &Run) -> bool {
    run.service.args.iter().any(|(name, _)| SIZES.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::testing::run;

    #[test]
    fn several_engines_share_and_one_is_left_to_itself() {
        let mut one = [run("a", 1, &[]), run("b", 0, &[])];
        share(&mut one);
        assert_eq!(one.map(|run| run.kv_share), [None, None]);
        let mut four = [run("a", 3, &[]), run("b", 1, &[("kv-cache-memory-bytes", "1G")])];
        share(&mut four);
        assert_eq!(four.map(|run| run.kv_share), [Some(0.125), None]);
    }
}
