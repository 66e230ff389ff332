//! What operator, gateway and engine agree on. The engine writes the same values on its side; a test compares both.

/// Name of the container that runs the engine in each pod.
pub const ENGINE_CONTAINER: &str = "engine";
/// Name of the init container that brings a model from `http(s)://`.
pub const FETCH_CONTAINER: &str = "fetch";
/// Program in the engine's image; the image's entrypoint.
pub const ENGINE_BINARY: &str = "regatta-engine";

/// Port of the OpenAI-compatible API.
pub const HTTP_PORT: i32 = 8000;
/// Name of [`HTTP_PORT`] in pods and Services.
pub const HTTP_PORT_NAME: &str = "http";
/// Port of the read-only internal state.
pub const INTERNAL_PORT: i32 = 8001;
/// Name of [`INTERNAL_PORT`] in pods.
pub const INTERNAL_PORT_NAME: &str = "internal";
/// Path of the internal state on [`INTERNAL_PORT`].
pub const STATE_PATH: &str = "/internal/state";
/// Path that answers 200 while the engine accepts work, on [`HTTP_PORT`].
pub const READYZ_PATH: &str = "/readyz";
/// Path that answers 200 while the process lives, on [`HTTP_PORT`].
pub const LIVEZ_PATH: &str = "/livez";

/// How long a probe waits for its answer. A busy engine may answer late; a shorter timeout takes busy replicas out when
/// they are needed most.
pub const PROBE_TIMEOUT_SECONDS: i32 = 5;
/// Between two startup probes.
pub const STARTUP_PERIOD_SECONDS: i32 = 1;
/// Between two readiness probes.
pub const READINESS_PERIOD_SECONDS: i32 = 2;
/// Readiness probes in a row after whose failure no requests go to an engine.
pub const READINESS_FAILURES: i32 = 3;
/// Between two liveness probes.
pub const LIVENESS_PERIOD_SECONDS: i32 = 10;
/// Liveness probes in a row after whose failure an engine is restarted.
pub const LIVENESS_FAILURES: i32 = 6;

/// Exit code of an engine that another start would not help: its command line, its model or its device is at fault.
pub const REFUSED_EXIT_CODE: i32 = 2;

/// Header of an engine's 503 that says: shutting down, another replica can answer.
pub const DRAINING_HEADER: &str = "x-regatta-draining";

/// Folder in which models are mounted.
pub const MODELS_DIR: &str = "/models";
/// Folder of the downward API volume; its file [`POD_INFO_FILE`] holds the pod's annotations.
pub const POD_INFO_DIR: &str = "/etc/regatta/pod";
/// File with the pod's annotations under [`POD_INFO_DIR`].
pub const POD_INFO_FILE: &str = "annotations";
/// Folder of the shared memory volume.
pub const SHARED_MEMORY_DIR: &str = "/dev/shm";
/// Environment variable that tells an engine which accelerator its pod asked for, as `RESOURCE=COUNT`.
pub const ACCELERATOR_ENV: &str = "REGATTA_ACCELERATOR";

/// Annotation that marks a pod as draining; its value is the time of the mark (RFC 3339).
pub const DRAINING_ANNOTATION: &str = "regatta.dev/draining";
/// Annotation that counts how often this replica was replaced after a failure.
pub const ATTEMPT_ANNOTATION: &str = "regatta.dev/attempt";
/// Annotation of a ControllerRevision: hash of the user's wishes that it was rendered from.
pub const SPEC_HASH_ANNOTATION: &str = "regatta.dev/spec-hash";
/// Readiness gate of each engine pod, set by the operator.
pub const ROUTABLE_GATE: &str = "regatta.dev/routable";

/// Label with the program's name.
pub const NAME_LABEL: &str = "app.kubernetes.io/name";
/// Value of [`NAME_LABEL`] on engine pods.
pub const NAME_VALUE: &str = "regatta-engine";
/// Label that names who manages an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY_LABEL`].
pub const MANAGED_BY_VALUE: &str = "regatta";
/// Label with the name of the LLMService.
pub const SERVICE_LABEL: &str = "regatta.dev/service";
/// Label with the hash of the pod template.
pub const REVISION_LABEL: &str = "regatta.dev/revision";

/// Finalizer of an LLMService.
pub const FINALIZER: &str = "regatta.dev/finalizer";
/// Field manager of all that the operator applies.
pub const FIELD_MANAGER: &str = "regatta";
