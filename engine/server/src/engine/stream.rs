//! One choice's events, from the engine thread to whoever asked.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use regatta_core::event::Event;
use regatta_core::replay::CancelReason;
use regatta_core::sequence::SequenceId;
use tokio::sync::mpsc;

use super::inbox::Inbox;

/// Events of one choice: tokens in order, then exactly one terminal event, then nothing. Dropping it cancels, as
/// [`Self::stop`] does.
#[derive(Debug)]
pub struct ChoiceStream {
    id: SequenceId,
    receiver: mpsc::Receiver<Event>,
    inbox: Arc<Inbox>,
    ended: bool,
}

impl ChoiceStream {
    /// A stream and its sending end. The capacity covers all that a sequence can ever send, so that the engine
    /// thread never waits for a slow reader.
    pub(super) fn new(id: SequenceId, max_tokens: u32, inbox: Arc<Inbox>) -> (mpsc::Sender<Event>, Self) {
        // Beside tokens: the prompt's log-probabilities, its end, and the terminal event.
        let (sender, receiver) = mpsc::channel(max_tokens as usize + 3);
        (sender, Self { id, receiver, inbox, ended: false })
    }

    /// The next event; `None` after the terminal one.
    pub async fn recv(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Ends the sequence because its text came to a stop string.
    pub(crate) fn stop(mut self) {
        self.cancel(CancelReason::StopString);
    }

    fn cancel(&mut self, reason: CancelReason) {
        if !std::mem::replace(&mut self.ended, true) {
            self.inbox.cancel(self.id, reason);
        }
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let event = ready!(self.receiver.poll_recv(cx)).unwrap_or_else(|| Event::Failed {
            reason: "the engine thread ended before this request did; its log says why".to_owned(),
        });
        self.ended = event.is_terminal();
        Poll::Ready(Some(event))
    }
}

impl Stream for ChoiceStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.poll_recv(cx)
    }
}

impl Drop for ChoiceStream {
    fn drop(&mut self) {
        self.cancel(CancelReason::Disconnected);
    }
}
