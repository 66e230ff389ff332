//! What was published last, for those who missed some of it.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use zeromq::{RouterSocket, SocketRecv, SocketSend, ZmqError, ZmqMessage};

/// How long an answer may take before it is given up.
const DEADLINE: Duration = Duration::from_secs(10);
/// After an error of the socket itself.
const PAUSE: Duration = Duration::from_millis(100);
/// Sizes shown of a request that is dropped.
const MAX_SHOWN: usize = 8;
/// In the place of a number: nothing follows.
const END: [u8; 8] = (-1i64).to_be_bytes();

/// The latest messages, numbered from 0.
#[derive(Debug)]
pub(super) struct ReplayBuffer {
    messages: VecDeque<Bytes>,
    capacity: usize,
    next_number: u64,
}

impl ReplayBuffer {
    pub(super) fn new(capacity: usize) -> Self {
        Self { messages: VecDeque::new(), capacity, next_number: 0 }
    }

    /// Keeps a message, instead of the oldest where there is no room; gives its number.
    pub(super) fn push(&mut self, message: Bytes) -> u64 {
        if self.messages.len() == self.capacity {
            self.messages.pop_front();
        }
        self.messages.push_back(message);
        self.next_number += 1;
        self.next_number - 1
    }

    /// The messages from number `first` on that are still here, with their numbers.
    fn from(&self, first: u64) -> Vec<(u64, Bytes)> {
        let oldest = self.next_number - self.messages.len() as u64;
        let skipped = usize::try_from(first.saturating_sub(oldest)).unwrap_or(usize::MAX);
        (oldest..).zip(self.messages.iter().cloned()).skip(skipped).collect()
    }
}

/// Answers requests, one at a time.
pub(super) async fn serve(mut socket: RouterSocket, buffer: &Mutex<ReplayBuffer>) {
    let mut num_malformed = 0_u64;
    loop {
        let Ok(request) = socket.recv().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let frames = request.into_vec();
        let Some((peer, delimiter, first)) = read(&frames) else {
            num_malformed += 1;
            // Whoever sends them without end does not fill the log.
            if num_malformed.is_power_of_two() {
                let sizes: Vec<usize> = frames.iter().skip(1).take(MAX_SHOWN).map(Bytes::len).collect();
                tracing::warn!(
                    num_malformed,
                    "a request for a replay of KV events is dropped: it has frames of {sizes:?} bytes instead of an \
                     empty one and one of 8, the first number wanted"
                );
            }
            continue;
        };
        let messages = {
            let buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            buffer.from(first)
        };
        let answer = answer(&mut socket, [peer, delimiter], messages);
        match tokio::time::timeout(DEADLINE, answer).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a replay of KV events was not wanted any more"),
            Err(_) => tracing::warn!("a replay of KV events took too long and was given up"),
        }
    }
}

/// `[peer, delimiter, number]` of a request; as in vLLM, others are dropped.
fn read(frames: &[Bytes]) -> Option<(&Bytes, &Bytes, u64)> {
    let [peer, delimiter, number] = frames else { return None };
    Some((peer, delimiter, u64::from_be_bytes(number[..].try_into().ok()?)))
}

/// `[peer, delimiter, number, message]` for each message, and one with [`END`] at last.
async fn answer(
    socket: &mut RouterSocket,
    [peer, delimiter]: [&Bytes; 2],
    messages: Vec<(u64, Bytes)>,
) -> Result<(), ZmqError> {
    let numbered = messages.into_iter().map(|(number, message)| (number.to_be_bytes(), message));
    for (number, message) in numbered.chain([(END, Bytes::new())]) {
        let frames = vec![peer.clone(), delimiter.clone(), Bytes::copy_from_slice(&number), message];
        let Ok(message) = ZmqMessage::try_from(frames) else { continue };
        socket.send(message).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_three_frames_the_last_of_eight_bytes() {
        let frames =
            |sizes: &[usize]| sizes.iter().map(|&size| Bytes::from(vec![1; size])).collect::<Vec<_>>();
        assert_eq!(read(&frames(&[5, 0, 8])).map(|(_, _, first)| first), Some(u64::MAX / 255));
        for sizes in [&[][..], &[5], &[5, 8], &[5, 0, 7], &[5, 0, 9], &[5, 0, 8, 8]] {
            assert_eq!(read(&frames(sizes)), None, "{sizes:?}");
        }
    }

    #[test]
    fn the_latest_messages_are_kept_with_their_numbers() {
        let mut buffer = ReplayBuffer::new(2);
        let messages: Vec<Bytes> = ["a", "b", "c"].map(Bytes::from).to_vec();
        let numbers: Vec<u64> = messages.iter().map(|message| buffer.push(message.clone())).collect();
        assert_eq!(numbers, [0, 1, 2]);
        let latest = [(1, messages[1].clone()), (2, messages[2].clone())];
        assert_eq!(buffer.from(0), latest);
        assert_eq!(buffer.from(2), latest[1..]);
        assert_eq!(buffer.from(u64::MAX), []);
    }
}
