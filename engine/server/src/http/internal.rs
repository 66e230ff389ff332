//! The second, read-only port: what the operator and the gateway read. It holds no secret and takes no order.

use std::sync::Arc;

use axum::{Json, Router, extract::State, routing::get};
use serde::Serialize;

use super::{ApiError, state::ServerState};

/// `GET /internal/state`.
#[derive(Debug, Serialize)]
struct EngineStatePage<'a> {
    version: &'static str,
    model: ModelPage<'a>,
    ready: bool,
    draining: bool,
    in_flight: usize,
    running: usize,
    waiting: usize,
    /// Those of them whose KV is in host memory.
    swapped: usize,
    kv: KvPage,
    steps: u64,
    isa: &'a str,
}

#[derive(Debug, Serialize)]
struct ModelPage<'a> {
    served_names: &'a [String],
    /// 0 while the model is loading.
    max_model_len: u32,
}

#[derive(Debug, Default, Serialize)]
struct KvPage {
    block_size: u32,
    num_blocks: u32,
    free: u32,
    cached: u32,
    in_use: u32,
    /// Blocks of host memory for preempted sequences, and those in use.
    num_host_blocks: u32,
    host_in_use: u32,
}

/// The router of the second port.
pub(super) fn router(server: Arc<ServerState>) -> Router {
    Router::new()
        .route("/internal/state", get(state))
        .fallback(
            |request: axum::extract::Request| async move { ApiError::unknown_path(request.uri().path()) },
        )
        .method_not_allowed_fallback(|| async { ApiError::method_not_allowed() })
        .with_state(server)
}

async fn state(State(server): State<Arc<ServerState>>) -> Json<serde_json::Value> {
    let model = server.loaded();
    let snapshot = model.map(|model| model.engine.snapshot());
    let page = EngineStatePage {
        version: env!("CARGO_PKG_VERSION"),
        model: ModelPage {
            served_names: &server.served_names,
            max_model_len: model.map_or(0, |model| model.max_model_len()),
        },
        ready: server.ready().is_ok(),
        draining: server.is_draining(),
        in_flight: server.num_in_flight(),
        running: snapshot.map_or(0, |snapshot| snapshot.stats.running),
        waiting: snapshot.map_or(0, |snapshot| snapshot.stats.waiting),
        swapped: snapshot.map_or(0, |snapshot| snapshot.stats.swapped),
        kv: snapshot.map_or_else(KvPage::default, |snapshot| KvPage {
            block_size: snapshot.stats.block_size,
            num_blocks: snapshot.stats.blocks.total,
            free: snapshot.stats.blocks.free,
            cached: snapshot.stats.blocks.cached,
            in_use: snapshot.stats.blocks.in_use,
            num_host_blocks: snapshot.stats.host_blocks.total,
            host_in_use: snapshot.stats.host_blocks.in_use,
        }),
        steps: snapshot.map_or(0, |snapshot| snapshot.stats.steps),
        isa: model.map_or("", |model| &model.isa),
    };
    Json(serde_json::to_value(page).expect("our own types serialise"))
}
