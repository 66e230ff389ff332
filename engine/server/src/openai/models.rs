//! `GET /v1/models`.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde_json::{Value, json};

use crate::http::{ApiError, ServerState};

/// The served names. Only a loaded model is listed.
pub(crate) async fn models(State(server): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    let Some(model) = server.loaded() else {
        return Err(ApiError::unavailable("the model is still loading; try again later"));
    };
    let card = |name: &String| {
        json!({
            "id": name,
            "object": "model",
            "created": server.created,
            "owned_by": "regatta",
            "root": model.root,
            "parent": null,
            "max_model_len": model.max_model_len(),
            "permission": [],
        })
    };
    let cards: Vec<Value> = server.served_names.iter().map(card).collect();
    Ok(Json(json!({"object": "list", "data": cards})))
}
