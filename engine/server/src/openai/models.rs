//! `GET /v1/models`, the list and each of its entries.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use serde_json::{Value, json};

use crate::{
    http::{ApiError, ServerState},
    model::ServedModel,
};

/// The served names. Only a loaded model is listed.
pub(crate) async fn models(State(server): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    let model = server.loaded().ok_or_else(loading)?;
    let cards: Vec<Value> = server.served_names.iter().map(|name| card(name, &server, model)).collect();
    Ok(Json(json!({"object": "list", "data": cards})))
}

/// `GET /v1/models/{name}`.
pub(crate) async fn model(
    State(server): State<Arc<ServerState>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    if !server.served_names.contains(&name) {
        return Err(ApiError::unknown_model(&name, &server.served_names));
    }
    let model = server.loaded().ok_or_else(loading)?;
    Ok(Json(card(&name, &server, model)))
}

fn loading() -> ApiError {
    ApiError::unavailable("the model is still loading; try again later")
}

fn card(name: &str, server: &ServerState, model: &ServedModel) -> Value {
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
}
