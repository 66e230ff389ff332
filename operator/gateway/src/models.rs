//! `GET /v1/models` over all services.

use axum::{
    Json,
    extract::{Path, State},
};
use http::{Method, Uri};
use serde_json::{Value, json};

use crate::{Gateway, Model, error::ApiError};

pub(crate) async fn list(State(gateway): State<Gateway>) -> Json<Value> {
    let table = gateway.0.table.load();
    let cards: Vec<Value> = table.iter().map(|(name, model)| card(name, model)).collect();
    Json(json!({"object": "list", "data": cards}))
}

pub(crate) async fn one(
    State(gateway): State<Gateway>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let table = gateway.0.table.load();
    let model = table.get(&id).ok_or_else(|| ApiError::unknown_model(&id, &table))?;
    Ok(Json(card(&id, model)))
}

/// A method that these paths do not take.
pub(crate) async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::WrongMethod { method, path: uri.path().to_owned() }
}

fn card(name: &str, model: &Model) -> Value {
    json!({"id": name, "object": "model", "created": model.created.as_second(), "owned_by": model.namespace})
}
