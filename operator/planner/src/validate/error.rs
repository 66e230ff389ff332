/// A rule that a spec breaks. The text goes to the condition `SpecValid` or to the terminal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// `metadata.name` does not fit.
    #[error(
        "metadata.name '{0}' must have 1 to 40 characters of a-z, 0-9 and '-', start with a letter and not end with '-'"
    )]
    Name(String),
    /// `file://` outside `regatta local`.
    #[error(
        "model.uri '{0}' names a file of one machine, which pods cannot see: put the file on a PersistentVolumeClaim and use pvc://claim/path, or give an https:// address"
    )]
    FileInCluster(String),
    /// A scheme that nothing fetches.
    #[error(
        "model.uri '{0}' must start with pvc://, http:// or https://; file:// works with regatta local only. Nothing is looked up on a model hub by its name: put its files on a volume, or give the https:// address of its GGUF file"
    )]
    Scheme(String),
    /// A URI of a known scheme that lacks a part.
    #[error("model.uri '{uri}' {problem}")]
    Uri {
        /// As written.
        uri: String,
        /// What is wrong and how it should look.
        problem: &'static str,
    },
    /// Not a SHA-256.
    #[error("model.sha256 must be 64 lower-case hexadecimal digits, as sha256sum prints them")]
    Sha256,
    /// A checksum for a folder.
    #[error(
        "model.sha256 is the checksum of a single file, but model.uri names a folder: remove one of them"
    )]
    Sha256OfFolder,
    /// No served name, or one without characters.
    #[error(
        "model.servedNames must hold at least one name and no empty one; remove the field to serve metadata.name"
    )]
    EmptyServedName,
    /// A served name twice.
    #[error("model.servedNames holds '{0}' twice")]
    DuplicateServedName(String),
    /// Fewer than no replicas.
    #[error("replicas is {0} and must be 0 or more")]
    NegativeReplicas(i32),
    /// Not a positive quantity.
    #[error("{field} is '{value}' and must be a positive quantity such as 500m, 2 or 8Gi")]
    Quantity {
        /// Path of the field in the spec.
        field: &'static str,
        /// As written.
        value: String,
    },
    /// More shared memory than memory.
    #[error("resources.sharedMemory counts against resources.memory and must not exceed it")]
    SharedMemory,
    /// No accelerator at all.
    #[error("accelerator.perPod is {0} and must be at least 1: remove spec.accelerator to run on the CPU")]
    AcceleratorCount(i32),
    /// An argument that the operator renders.
    #[error("engine.args must not hold '{0}', which is set by Regatta itself")]
    OwnedArg(String),
    /// A variable that the operator sets.
    #[error("engine.env must not hold '{0}', which is set by Regatta itself")]
    OwnedEnv(String),
    /// A variable with a value and a source.
    #[error("engine.env '{0}' has both a value and a valueFrom: remove one of them")]
    EnvValueTwice(String),
    /// Too long, or negative.
    #[error("rollout.drainTimeout must be between 0s and 24h")]
    DrainTimeout,
    /// Not a PodTemplateSpec.
    #[error("podTemplate is not a PodTemplateSpec: {0}")]
    PodTemplate(String),
}
