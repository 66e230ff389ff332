//! What the typed flags mean: checked, defaulted, and free of contradictions.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use regatta_core::{sampling::LogprobsMode, scheduler::PreemptionMode};

use crate::kv_events::KvEventsConfig;

use super::{scheduling::SchedulerSettings, typed::ServeFlags, units::Count};

/// More than any machine has.
const MAX_SWAP_GIB: f64 = 65_536.0;
const MAX_THREADS: usize = 1024;
const MAX_SERVED_NAMES: usize = 64;

/// Everything `serve` needs to know.
#[derive(Clone, Debug)]
pub struct ServeSettings {
    /// A GGUF file or a Hugging Face folder.
    pub model: PathBuf,
    /// Names under which clients know the model; at least one.
    pub served_names: Vec<String>,
    /// Where the HTTP API listens.
    pub address: SocketAddr,
    /// Where the read-only state is served, if anywhere.
    pub internal_address: Option<SocketAddr>,
    /// Keys of which clients must send one; empty: no key is asked for.
    pub api_keys: ApiKeys,
    /// How steps are planned.
    pub scheduler: SchedulerSettings,
    /// Most choices beyond `max_num_seqs` that are held.
    pub max_num_queued_reqs: u32,
    /// Most prompt tokens that wait for their first step.
    pub max_num_queued_tokens: u32,
    /// How large the KV cache is.
    pub kv_cache: KvCacheSize,
    /// Bytes of host memory for the KV of preempted sequences.
    pub swap_bytes: u64,
    /// Where KV events are published, if anywhere.
    pub kv_events: Option<KvEventsConfig>,
    /// Whether the usage says how many prompt tokens came from the prefix cache.
    pub prompt_tokens_details: bool,
    /// Whether endpoints for tests and development are served.
    pub dev_endpoints: bool,
    /// Root of the seeds of requests that bring none.
    pub seed: u64,
    /// Most log-probabilities per token.
    pub max_logprobs: u32,
    /// What is reported as the log-probability of a generated token.
    pub logprobs_mode: LogprobsMode,
    /// Compute threads; absent: as many as the process may use.
    pub threads: Option<usize>,
    /// File into which the schedule is recorded, if any.
    pub record_schedule: Option<PathBuf>,
    /// SHA-256 of the model file, lower-case hexadecimal.
    pub model_sha256: Option<String>,
    /// Folder with the pod's annotations.
    pub pod_info: Option<PathBuf>,
    /// How long requests in flight may go on after SIGTERM.
    pub shutdown_timeout: Duration,
}

/// How the size of the KV cache is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KvCacheSize {
    /// This share, in (0, 1], of the memory that is left beside the weights; never more than can be used.
    Share(f32),
    /// As many blocks as these bytes hold.
    Bytes(u64),
    /// This many blocks.
    Blocks(u32),
}

/// API keys. Their `Debug` shows how many there are, never one of them.
#[derive(Clone, Default)]
pub struct ApiKeys(Vec<String>);

impl ApiKeys {
    /// Whether no key is asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl From<Vec<String>> for ApiKeys {
    fn from(keys: Vec<String>) -> Self {
        Self(keys)
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeys({})", self.0.len())
    }
}

impl ServeSettings {
    /// Most choices that run and wait at once.
    pub fn max_num_choices(&self) -> usize {
        self.scheduler.max_num_seqs as usize + self.max_num_queued_reqs as usize
    }
}

impl TryFrom<ServeFlags> for ServeSettings {
    /// A sentence that names the flag, what is wrong, and what would be right.
    type Error = String;

    fn try_from(flags: ServeFlags) -> Result<Self, String> {
        let internal_address = internal_address(&flags)?;
        let scheduler: SchedulerSettings = flags.scheduler.try_into()?;
        let swap_bytes = swap_bytes(flags.swap_space)?;
        if scheduler.preemption_mode == PreemptionMode::Swap && swap_bytes == 0 {
            return Err(
                "--preemption-mode swap: there is no host memory to swap to; give --swap-space as well"
                    .into(),
            );
        }
        let kv_events = match flags.kv_events_config {
            Some(text) => KvEventsConfig::parse(&text)?,
            None => None,
        };
        if kv_events.is_some() && !scheduler.enable_prefix_caching {
            return Err("--kv-events-config: there are no events without --enable-prefix-caching".into());
        }
        Ok(Self {
            served_names: served_names(flags.served_model_name, &flags.model)?,
            address: SocketAddr::new(flags.host, flags.port),
            internal_address,
            api_keys: api_keys(flags.api_key)?,
            scheduler,
            max_num_queued_reqs: within(
                "--max-num-queued-reqs",
                flags.max_num_queued_reqs.into(),
                0,
                1 << 20,
            )?,
            max_num_queued_tokens: within(
                "--max-num-queued-tokens",
                flags.max_num_queued_tokens.0,
                1,
                u32::MAX.into(),
            )?,
            swap_bytes,
            kv_cache: match (flags.num_gpu_blocks_override, flags.kv_cache_memory_bytes) {
                (Some(0), _) => return Err("--num-gpu-blocks-override 0: must be at least 1".into()),
                (Some(blocks), _) => KvCacheSize::Blocks(blocks),
                (None, Some(Count(0))) => {
                    return Err(
                        "--kv-cache-memory-bytes 0: give what some blocks take, or leave it out".into()
                    );
                }
                (None, Some(Count(bytes))) => KvCacheSize::Bytes(bytes),
                (None, None) => KvCacheSize::Share(share(flags.gpu_memory_utilization)?),
            },
            kv_events,
            prompt_tokens_details: flags.enable_prompt_tokens_details,
            dev_endpoints: flags.enable_dev_endpoints,
            seed: flags.seed,
            logprobs_mode: flags.logprobs_mode.into(),
            max_logprobs: within("--max-logprobs", flags.max_logprobs.into(), 0, 20)?,
            threads: match flags.threads {
                Some(n) if n == 0 || n > MAX_THREADS => {
                    return Err(format!("--threads {n}: must be between 1 and {MAX_THREADS}"));
                }
                threads => threads,
            },
            record_schedule: flags.record_schedule,
            model_sha256: flags.model_sha256.map(checksum).transpose()?,
            pod_info: flags.pod_info,
            shutdown_timeout: Duration::from_secs(flags.shutdown_timeout.min(24 * 60 * 60)),
            model: flags.model,
        })
    }
}

pub(super) fn within(flag: &str, value: u64, min: u64, max: u64) -> Result<u32, String> {
    u32::try_from(value)
        .ok()
        .filter(|_| (min..=max).contains(&value))
        .ok_or_else(|| format!("{flag} {value}: must be between {min} and {max}"))
}

fn share(value: f32) -> Result<f32, String> {
    if value > 0.0 && value <= 1.0 {
        return Ok(value);
    }
    Err(format!("--gpu-memory-utilization {value}: must be above 0 and at most 1"))
}

fn swap_bytes(gib: f64) -> Result<u64, String> {
    if (0.0..=MAX_SWAP_GIB).contains(&gib) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within the bounds just checked
        return Ok((gib * f64::from(1 << 30)) as u64);
    }
    Err(format!("--swap-space {gib}: must be between 0 and {MAX_SWAP_GIB} GiB"))
}

fn served_names(names: Vec<String>, model: &std::path::Path) -> Result<Vec<String>, String> {
    if names.len() > MAX_SERVED_NAMES {
        return Err(format!("--served-model-name: at most {MAX_SERVED_NAMES} names, not {}", names.len()));
    }
    if let Some(name) = names.iter().find(|name| name.len() > 256 || name.chars().any(char::is_control)) {
        let shown: String = name.chars().take(40).collect();
        return Err(format!("--served-model-name {shown:?}: at most 256 bytes, without control characters"));
    }
    Ok(if names.is_empty() { vec![model.to_string_lossy().into_owned()] } else { names })
}

fn internal_address(flags: &ServeFlags) -> Result<Option<SocketAddr>, String> {
    if flags.internal_port == Some(flags.port) && flags.port != 0 {
        return Err(format!(
            "--internal-port {0}: --port is {0} already; give them different ports",
            flags.port
        ));
    }
    Ok(flags.internal_port.map(|port| SocketAddr::new(flags.host, port)))
}

fn api_keys(keys: Vec<String>) -> Result<ApiKeys, String> {
    if keys.iter().any(|key| key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err(
            "--api-key: a key is one or more visible ASCII characters; no key at all leaves /v1 open".into(),
        );
    }
    Ok(ApiKeys(keys))
}

fn checksum(text: String) -> Result<String, String> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!(
            "--model-sha256: {} characters given, 64 hexadecimal digits wanted",
            text.chars().count()
        ));
    }
    Ok(text.to_ascii_lowercase())
}
