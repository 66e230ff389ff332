//! From the engine thread to the publisher.

use std::time::{SystemTime, UNIX_EPOCH};

use regatta_core::{
    kv::{KvEvent, KvGroups},
    runner::RunnerLimits,
};
use tokio::sync::mpsc;

/// What changed in one step.
#[derive(Debug)]
pub struct KvEventBatch {
    /// Seconds since 1970.
    pub timestamp: f64,
    /// Tokens in a block.
    pub block_size: u32,
    /// What [`KvEvent`]'s group numbers mean.
    pub kv_groups: KvGroups,
    /// In order.
    pub events: Vec<KvEvent>,
}

/// The engine thread's end of the queue.
#[derive(Clone, Debug)]
pub struct KvEventSender {
    queue: mpsc::Sender<KvEventBatch>,
    lost: bool,
}

impl KvEventSender {
    /// A queue of at most `max_len` steps.
    pub fn new(max_len: usize) -> (Self, mpsc::Receiver<KvEventBatch>) {
        let (queue, receiver) = mpsc::channel(max_len);
        (Self { queue, lost: false }, receiver)
    }

    /// Sends what changed, without waiting. After a loss, what follows begins with an order to forget all: nobody then
    /// believes that a block is there which is not.
    pub fn send(&mut self, limits: &RunnerLimits, mut events: Vec<KvEvent>) {
        let Ok(place) = self.queue.try_reserve() else {
            if !std::mem::replace(&mut self.lost, true) {
                tracing::warn!("KV events are lost: they are not published as fast as they come");
            }
            return;
        };
        if std::mem::take(&mut self.lost) {
            events.insert(0, KvEvent::Cleared);
        }
        let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let (block_size, kv_groups) = (limits.block_size, limits.kv_groups);
        place.send(KvEventBatch { timestamp, block_size, kv_groups, events });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_delays_nobody_and_what_follows_a_loss_begins_afresh() {
        let limits = RunnerLimits {
            block_size: 16,
            num_blocks: 1,
            kv_groups: KvGroups::FULL,
            num_host_blocks: 0,
            max_num_seqs: 1,
            max_num_batched_tokens: 1,
            max_in_flight: 1,
            feeds_sampled_tokens: false,
        };
        let removed = || vec![KvEvent::Removed { group: 0, hash: regatta_core::kv::BlockHash([1; 32]) }];
        let (mut sender, mut receiver) = KvEventSender::new(1);
        sender.send(&limits, removed());
        sender.send(&limits, removed());
        assert_eq!(receiver.try_recv().unwrap().events, removed());
        sender.send(&limits, removed());
        assert_eq!(receiver.try_recv().unwrap().events, [vec![KvEvent::Cleared], removed()].concat());
        assert!(receiver.try_recv().is_err());
    }
}
