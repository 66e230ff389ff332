//! `--kv-events-config`, as vLLM reads it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::Deserialize;

/// What the queues inside the socket hold for each subscriber.
const HIGH_WATER_MARK: usize = 100_000;
/// Bounds that keep memory within reason.
const MAX_STEPS: usize = 1_000_000;

/// Where and how KV events are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEventsConfig {
    /// Where subscribers connect.
    pub endpoint: SocketAddr,
    /// Where lost messages can be had again, if anywhere.
    pub replay_endpoint: Option<SocketAddr>,
    /// Messages that are kept for that.
    pub buffer_steps: usize,
    /// Steps that wait to be published; what comes beyond them is lost.
    pub max_queue_size: usize,
    /// First frame of each message.
    pub topic: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Typed {
    enable_kv_cache_events: bool,
    publisher: Option<String>,
    endpoint: String,
    replay_endpoint: Option<String>,
    buffer_steps: usize,
    hwm: usize,
    max_queue_size: usize,
    topic: String,
}

impl Default for Typed {
    fn default() -> Self {
        Self {
            enable_kv_cache_events: false,
            publisher: None,
            endpoint: "tcp://*:5557".into(),
            replay_endpoint: None,
            buffer_steps: 10_000,
            hwm: HIGH_WATER_MARK,
            max_queue_size: 100_000,
            topic: String::new(),
        }
    }
}

impl KvEventsConfig {
    /// Reads the flag's JSON; `None` when it says that nothing is to be published.
    ///
    /// # Errors
    /// A sentence that says what is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let refuse = |reason: String| format!("--kv-events-config: {reason}");
        let typed: Typed = serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
        match typed.publisher.as_deref() {
            _ if !typed.enable_kv_cache_events => return Ok(None),
            Some("null") => return Ok(None),
            None | Some("zmq") => {}
            Some(other) => return Err(refuse(format!("publisher `{other}`: give zmq or null"))),
        }
        if typed.hwm != HIGH_WATER_MARK {
            return Err(refuse(format!("hwm {}: it cannot be changed; leave it out", typed.hwm)));
        }
        for (name, value) in [("buffer_steps", typed.buffer_steps), ("max_queue_size", typed.max_queue_size)]
        {
            if !(1..=MAX_STEPS).contains(&value) {
                return Err(refuse(format!("{name} {value}: must be between 1 and {MAX_STEPS}")));
            }
        }
        if typed.topic.len() > 1024 {
            return Err(refuse("topic: at most 1024 bytes".into()));
        }
        Ok(Some(Self {
            endpoint: address(&typed.endpoint).map_err(refuse)?,
            replay_endpoint: typed.replay_endpoint.as_deref().map(address).transpose().map_err(refuse)?,
            buffer_steps: typed.buffer_steps,
            max_queue_size: typed.max_queue_size,
            topic: typed.topic,
        }))
    }
}

/// `tcp://*:5557` or `tcp://ADDRESS:PORT`, to listen on.
fn address(endpoint: &str) -> Result<SocketAddr, String> {
    let parse = || {
        let rest = endpoint.strip_prefix("tcp://")?;
        match rest.strip_prefix("*:") {
            Some(port) => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port.parse().ok()?)),
            None => rest.parse().ok(),
        }
    };
    parse().ok_or_else(|| {
        let shown: String = endpoint.chars().take(80).collect();
        format!("endpoint `{shown}`: the engine listens, on tcp://*:PORT or tcp://ADDRESS:PORT")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_vllm() {
        let config = KvEventsConfig::parse(r#"{"enable_kv_cache_events": true}"#).unwrap().unwrap();
        assert_eq!(config.endpoint.to_string(), "0.0.0.0:5557");
        assert_eq!((config.replay_endpoint, config.buffer_steps), (None, 10_000));
        assert_eq!((config.max_queue_size, config.topic.as_str()), (100_000, ""));
    }

    #[test]
    fn nothing_is_published_unless_asked_for() {
        for text in
            ["{}", r#"{"publisher": "zmq"}"#, r#"{"enable_kv_cache_events": true, "publisher": "null"}"#]
        {
            assert_eq!(KvEventsConfig::parse(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_with_the_remedy() {
        let cases = [
            (r#"{"endpoint": "tcp://router:5557"}"#, "the engine listens, on tcp://*:PORT"),
            (r#"{"replay_endpoint": "ipc://replay"}"#, "the engine listens"),
            (r#"{"publisher": "kafka"}"#, "give zmq or null"),
            (r#"{"hwm": 5}"#, "cannot be changed"),
            (r#"{"buffer_steps": 0}"#, "between 1 and"),
            (r#"{"colour": "red"}"#, "unknown field `colour`"),
            ("true", "invalid type"),
        ];
        for (text, wanted) in cases {
            let text = text.replace('{', r#"{"enable_kv_cache_events": true, "#);
            let error = KvEventsConfig::parse(&text).unwrap_err();
            assert!(error.starts_with("--kv-events-config: ") && error.contains(wanted), "{text}: {error}");
        }
    }
}
