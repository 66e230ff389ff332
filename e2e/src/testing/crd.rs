//! Custom resource definitions for tests.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};

use super::wait_for;

/// How long the API server may take to serve a new kind.
const DEADLINE: Duration = Duration::from_secs(30);
const MANAGER: &str = "regatta-e2e";

/// Installs `crd` and returns once the API server serves its kind. Tests that run side by side may all call it.
///
/// # Errors
/// When the API server refuses it.
///
/// # Panics
/// When the kind is not served after 30 seconds.
pub async fn install_crd(client: &Client, crd: &CustomResourceDefinition) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = crd.name_any();
    api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(crd))
        .await
        .with_context(|| format!("the definition {name} was refused"))?;
    wait_for(&format!("{name} to be served"), DEADLINE, async || {
        let crd = api.get(&name).await.map_err(|error| error.to_string())?;
        let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
        let established = conditions.iter().any(|is| is.type_ == "Established" && is.status == "True");
        if established { Ok(()) } else { Err(format!("{conditions:?}")) }
    })
    .await;
    Ok(())
}
