//! The task that publishes.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use zeromq::{PubSocket, RouterSocket, Socket, SocketSend, ZmqError, ZmqMessage};

use super::{
    KvEventBatch, KvEventSender, KvEventsConfig,
    encode::encode,
    replay::{self, ReplayBuffer},
};

/// KV events cannot be published.
#[derive(Debug, thiserror::Error)]
#[error("cannot publish KV events on tcp://{address}: {cause}; give another {name} in --kv-events-config")]
pub struct KvEventsError {
    name: &'static str,
    address: SocketAddr,
    cause: ZmqError,
}

/// Listens, and publishes on `tasks` what the sender is given, until `stop`.
///
/// # Errors
/// An address cannot be listened on.
pub async fn start(
    config: &KvEventsConfig,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<KvEventSender, KvEventsError> {
    let mut socket = PubSocket::new();
    bind(&mut socket, "endpoint", config.endpoint).await?;
    let buffer = Arc::new(Mutex::new(ReplayBuffer::new(config.buffer_steps)));
    if let Some(address) = config.replay_endpoint {
        let mut replay = RouterSocket::new();
        bind(&mut replay, "replay_endpoint", address).await?;
        let (buffer, stop) = (Arc::clone(&buffer), stop.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = replay::serve(replay, &buffer) => {}
                () = stop.cancelled() => {}
            }
        });
    }
    let (sender, queue) = KvEventSender::new(config.max_queue_size);
    let publisher = Publisher { socket, buffer, topic: config.topic.clone().into() };
    tasks.spawn(publisher.run(queue, stop.clone()));
    Ok(sender)
}

async fn bind(
    socket: &mut impl Socket,
    name: &'static str,
    address: SocketAddr,
) -> Result<(), KvEventsError> {
    let bound = socket.bind(&format!("tcp://{address}")).await;
    bound.map(|_| ()).map_err(|cause| KvEventsError { name, address, cause })
}

struct Publisher {
    socket: PubSocket,
    buffer: Arc<Mutex<ReplayBuffer>>,
    topic: Bytes,
}

impl Publisher {
    async fn run(mut self, mut queue: mpsc::Receiver<KvEventBatch>, stop: CancellationToken) {
        loop {
            tokio::select! {
                batch = queue.recv() => match batch {
                    Some(batch) => self.publish(&batch).await,
                    None => break,
                },
                () = stop.cancelled() => break,
            }
        }
        self.socket.close().await;
    }

    async fn publish(&mut self, batch: &KvEventBatch) {
        let payload = match encode(batch) {
            Ok(payload) => Bytes::from(payload),
            Err(error) => return tracing::error!(%error, "KV events cannot be encoded"),
        };
        let number = {
            let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
            buffer.push(payload.clone())
        };
        let frames = vec![self.topic.clone(), Bytes::copy_from_slice(&number.to_be_bytes()), payload];
        let Ok(message) = ZmqMessage::try_from(frames) else { return };
        // Only queues the message: it is dropped for subscribers whose queue is full.
        if let Err(error) = self.socket.send(message).await {
            tracing::warn!(%error, "KV events could not be published");
        }
    }
}
