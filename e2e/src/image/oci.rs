//! The OCI image layout (image-spec v1.1): blobs named by their digest, and an index that names the image.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, Header};

use super::rootfs::USER;
use crate::programs::hex;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// Writes an image of one uncompressed layer as a tar file, and returns its size in bytes.
pub(super) fn write(output: &Path, name: &str, entrypoint: &str, layer: &[u8]) -> Result<u64> {
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "Entrypoint": [entrypoint],
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "WorkingDir": "/tmp",
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
    })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(CONFIG, config.as_bytes()),
        "layers": [descriptor(LAYER, layer)],
    })
    .to_string();
    let mut named = descriptor(MANIFEST, manifest.as_bytes());
    let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    named["annotations"] =
        json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag});
    let index = json!({"schemaVersion": 2, "manifests": [named]}).to_string();

    let mut tar = Builder::new(Vec::new());
    append(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut tar, "index.json", index.as_bytes())?;
    for blob in [config.as_bytes(), manifest.as_bytes(), layer] {
        append(&mut tar, &format!("blobs/sha256/{}", hex(&Sha256::digest(blob))), blob)?;
    }
    let bytes = tar.into_inner().context("cannot finish an image archive")?;
    if let Some(parent) = output.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    fs::write(output, &bytes).with_context(|| format!("cannot write {}", output.display()))?;
    Ok(bytes.len() as u64)
}

fn append(tar: &mut Builder<Vec<u8>>, path: &str, bytes: &[u8]) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_size(bytes.len() as u64);
    tar.append_data(&mut header, path, bytes).with_context(|| format!("cannot pack {path}"))
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(bytes), "size": bytes.len()})
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

/// The machine's architecture in the words of Go, which OCI uses.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
