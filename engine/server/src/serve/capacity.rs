//! How much the engine holds, in words, and what limits it.

use std::fmt;

use regatta_core::runner::RunnerLimits;

/// What a runner holds for sequences of a given length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) limits: RunnerLimits,
    pub(super) max_model_len: u32,
}

impl Capacity {
    /// Tokens in all KV blocks.
    fn tokens(&self) -> u64 {
        u64::from(self.limits.num_blocks) * u64::from(self.limits.block_size)
    }

    /// Sequences of full length that fit at once.
    fn full_sequences(&self) -> u32 {
        let blocks = self.max_model_len.div_ceil(self.limits.block_size).max(1);
        (self.limits.num_blocks / blocks).min(self.limits.max_num_seqs)
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunnerLimits { num_blocks, block_size, max_num_seqs, .. } = self.limits;
        let full = self.full_sequences();
        let limit = if full == max_num_seqs { "--max-num-seqs" } else { "the KV cache" };
        write!(
            f,
            "{num_blocks} KV blocks of {block_size} tokens hold {} tokens: {full} sequences of {} tokens (limited by \
             {limit}), at most {max_num_seqs} shorter ones",
            self.tokens(),
            self.max_model_len
        )
    }
}

#[cfg(test)]
mod tests {
    use regatta_core::kv::KvGroups;

    use super::*;

    fn words(num_blocks: u32, max_num_seqs: u32) -> String {
        let limits = RunnerLimits {
            block_size: 16,
            num_blocks,
            kv_groups: KvGroups::FULL,
            num_host_blocks: 0,
            max_num_seqs,
            max_num_batched_tokens: 512,
            max_in_flight: 1,
        };
        Capacity { limits, max_model_len: 100 }.to_string()
    }

    #[test]
    fn what_limits_the_number_of_sequences_is_named() {
        let text = words(70, 8);
        assert!(
            text.contains("hold 1120 tokens: 8 sequences of 100 tokens (limited by --max-num-seqs)"),
            "{text}"
        );
        let text = words(14, 8);
        assert!(text.contains("2 sequences of 100 tokens (limited by the KV cache)"), "{text}");
    }
}
