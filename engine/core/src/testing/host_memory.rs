//! Blocks outside KV memory.

use crate::plan::BlockSwap;

/// Whole blocks of `T`, each there from when it is swapped out until it is swapped in.
#[derive(Debug)]
pub(super) struct HostMemory<T>(Vec<Option<Vec<T>>>);

impl<T: Copy> HostMemory<T> {
    pub(super) fn new(num_blocks: u32) -> Self {
        Self((0..num_blocks).map(|_| None).collect())
    }

    pub(super) fn swap_out(&mut self, swaps: &[BlockSwap], slots: &[T], block_size: usize) {
        for swap in swaps {
            let start = swap.device.0 as usize * block_size;
            self.0[swap.host.0 as usize] = Some(slots[start..start + block_size].to_vec());
        }
    }

    pub(super) fn swap_in(&mut self, swaps: &[BlockSwap], slots: &mut [T], block_size: usize) {
        for swap in swaps {
            let block = self.0[swap.host.0 as usize].take();
            let block = block.unwrap_or_else(|| panic!("host block {} is read and empty", swap.host.0));
            let start = swap.device.0 as usize * block_size;
            slots[start..start + block_size].copy_from_slice(&block);
        }
    }
}
