use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// The model of a service.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(validation = Rule::new("!has(self.sha256) || !self.uri.endsWith('/')")
    .message("model.sha256 is the checksum of a single file, but model.uri names a folder: remove one of them"))]
#[serde(rename_all = "camelCase")]
pub struct ModelSpec {
    /// Where the weights are: `pvc://claim/path` is a file or folder on a PersistentVolumeClaim of the namespace,
    /// mounted read-only; `http://` and `https://` name one file that each pod downloads before it starts;
    /// `file:///path` works with `regatta local` only.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(
        validation = Rule::new("self.matches('^(pvc|https?|file)://')")
            .message("model.uri must start with pvc://, http://, https:// or, with regatta local only, file://; a name such as org/model is not looked up on a model hub: put its files on a volume, or give the https:// address of its GGUF file"),
        validation = Rule::new(r"!self.startsWith('pvc://') || self.matches('^pvc://[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[^/]')")
            .message("model.uri must name a claim and a path in it, as in pvc://my-claim/folder/model.gguf"),
        validation = Rule::new(r"!self.startsWith('http') || self.matches('^https?://[^/?#@]+/([^?#]*/)?[A-Za-z0-9_][-+.A-Za-z0-9_]*([?][^#]*)?$')")
            .message("model.uri must name one file on a host, without user, password or fragment, as in https://host/folder/model.gguf"),
        validation = Rule::new("!self.startsWith('file://') || self.startsWith('file:///')")
            .message("model.uri must hold an absolute path after file://, as in file:///models/model.gguf"),
        validation = Rule::new(r"!self.matches('(^|/)[.][.]?(/|$)') && !self.matches('[\\s\\\\]')")
            .message("model.uri must not hold spaces, backslashes or the path segments '.' and '..'")
    )]
    pub uri: String,

    /// SHA-256 of the file that `uri` names, as 64 lower-case hexadecimal digits; verified before the file is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[0-9a-f]{64}$')")
        .message("model.sha256 must be 64 lower-case hexadecimal digits, as sha256sum prints them"))]
    pub sha256: Option<String>,

    /// Names under which clients ask for the model; absent: metadata.name. Services of one namespace that serve
    /// the same name share its requests; between namespaces the oldest service keeps a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::served_names")]
    #[x_kube(validation = Rule::new("self.all(n, n.matches('^[A-Za-z0-9]([-._:/@+A-Za-z0-9]*[A-Za-z0-9])?$'))")
        .message("model.servedNames may hold letters, digits and -._:/@+ and must start and end with a letter or digit"))]
    pub served_names: Option<Vec<String>>,
}
