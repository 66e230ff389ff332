//! How much the engine holds, in words, and what limits it.

use std::fmt;

use regatta_core::{kv::KvGroups, runner::RunnerLimits};

use crate::args::settings::KvCacheSize;

/// What a runner holds for sequences of a given length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) limits: RunnerLimits,
    pub(super) max_model_len: u32,
    pub(super) kv_cache: KvCacheSize,
}

impl Capacity {
    /// Tokens in all KV blocks: each takes a place in every group of layers.
    fn tokens(&self) -> u64 {
        let num_groups = self.limits.kv_groups.as_slice().len() as u64;
        u64::from(self.limits.num_blocks) * u64::from(self.limits.block_size) / num_groups
    }

    /// Sequences of full length that fit at once.
    fn full_sequences(&self) -> u32 {
        let RunnerLimits { block_size, num_blocks, max_num_seqs, kv_groups, max_num_batched_tokens, .. } =
            self.limits;
        let blocks = kv_groups.max_blocks(self.max_model_len, max_num_batched_tokens, block_size).max(1);
        (num_blocks / blocks).min(max_num_seqs)
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunnerLimits { num_blocks, block_size, max_num_seqs, kv_groups, .. } = self.limits;
        write!(f, "{num_blocks} KV blocks of {block_size} tokens")?;
        if kv_groups != KvGroups::FULL {
            write!(f, " for {} groups of layers", kv_groups.as_slice().len())?;
        }
        let full = self.full_sequences();
        write!(f, " hold {} tokens: {full} sequences of {} tokens", self.tokens(), self.max_model_len)?;
        match full == max_num_seqs {
            true => write!(f, " (limited by --max-num-seqs)"),
            false => write!(f, " (limited by the KV cache: {})", self.kv_cache),
        }?;
        write!(f, ", at most {max_num_seqs} shorter ones")
    }
}

impl fmt::Display for KvCacheSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "--gpu-memory-utilization {share} of the memory that is left"),
            Self::Bytes(bytes) => write!(f, "--kv-cache-memory-bytes {bytes}"),
            Self::Blocks(blocks) => write!(f, "--num-gpu-blocks-override {blocks}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use regatta_core::kv::KvGroup;

    use super::*;

    fn words(num_blocks: u32, max_num_seqs: u32, kv_groups: KvGroups) -> String {
        let limits = RunnerLimits {
            block_size: 16,
            num_blocks,
            kv_groups,
            num_host_blocks: 0,
            max_num_seqs,
            max_num_batched_tokens: 512,
            max_in_flight: 1,
            feeds_sampled_tokens: false,
        };
        Capacity { limits, max_model_len: 100, kv_cache: KvCacheSize::Share(0.5) }.to_string()
    }

    #[test]
    fn what_limits_the_number_of_sequences_is_named() {
        let text = words(70, 8, KvGroups::FULL);
        assert!(
            text.contains("hold 1120 tokens: 8 sequences of 100 tokens (limited by --max-num-seqs)"),
            "{text}"
        );
        let text = words(14, 8, KvGroups::FULL);
        assert!(
            text.contains(
                "2 sequences of 100 tokens (limited by the KV cache: --gpu-memory-utilization 0.5 of"
            ),
            "{text}"
        );
    }

    #[test]
    fn windows_take_only_what_they_see() {
        let window = KvGroup::SlidingWindow { window: 17 };
        // Seven blocks for the full layers, and for the others as long as prompts may come in one step.
        let text = words(28, 8, KvGroups::new(&[KvGroup::Full, window]).unwrap());
        assert!(
            text.starts_with("28 KV blocks of 16 tokens for 2 groups of layers hold 224 tokens: 2 "),
            "{text}"
        );
    }
}
