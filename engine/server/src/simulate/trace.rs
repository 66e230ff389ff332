//! Request traces: one line of CSV for each request, with its time of arrival, prompt tokens and generated tokens.

use std::io::{self, BufRead, Read};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::civil::DateTime;
use regatta_core::simulate::Arrival;

use crate::input::{self, Name};

const MAX_LINE_BYTES: u64 = 1024;
const MAX_REQUESTS: usize = 10_000_000;
/// Latest time of arrival, in seconds: three centuries, of which a double still tells microseconds.
const MAX_SECONDS: f64 = 1e10;
/// Longest prompt and answer of a request, in tokens.
const MAX_TOKENS: u32 = 1 << 24;
/// Most prompt tokens of a trace: they are held in memory.
const MAX_TOTAL_TOKENS: u64 = 1 << 30;

/// A trace and how it is changed.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    /// The file; `-`: standard input.
    pub file: PathBuf,
    /// Only the first so many requests.
    pub num_requests: Option<usize>,
    /// Times between arrivals are multiplied by this: 0.5 doubles the load.
    pub time_scale: f64,
    /// Lengths are multiplied by this.
    pub token_scale: f64,
    /// Tokens at the beginning of each prompt that it shares with others, as far as it is that long.
    pub shared_prefix_len: u32,
    /// How many different shared beginnings there are; requests take them in turn.
    pub num_shared_prefixes: u32,
    /// Token ids are below this.
    pub vocab_size: u32,
}

/// A trace that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be read.
    #[error("{}: {cause}", Name(file))]
    Io {
        /// The trace.
        file: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// A line is not as it should be.
    #[error(
        "{}: line {line}: {reason}; each line is: time of arrival (2023-11-16 18:17:03.98, or seconds), prompt tokens, \
         generated tokens",
        Name(file)
    )]
    Line {
        /// The trace.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// No request.
    #[error("{}: no requests", Name(.0))]
    Empty(PathBuf),
}

/// A line of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Request {
    seconds: f64,
    num_prompt_tokens: u32,
    num_generated_tokens: u32,
}

/// The requests in the order of arrival, the first at 0.
pub(super) fn read(settings: &TraceSettings) -> Result<Vec<Arrival>, TraceError> {
    let io = |cause| TraceError::Io { file: settings.file.clone(), cause };
    let mut reader = input::open(&settings.file).map_err(io)?;
    let mut requests = Vec::new();
    let (mut line, mut number, mut num_tokens) = (Vec::new(), 0, 0_u64);
    while requests.len() < settings.num_requests.unwrap_or(usize::MAX) {
        line.clear();
        if reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line).map_err(io)? == 0 {
            break;
        }
        number += 1;
        let refuse = |reason| TraceError::Line { file: settings.file.clone(), line: number, reason };
        let text = std::str::from_utf8(&line).map_err(|error| refuse(error.to_string()))?.trim();
        // The first line may name the columns.
        if text.is_empty() || (number == 1 && text.starts_with(|c: char| c.is_ascii_alphabetic())) {
            continue;
        }
        let request = parse(text).map_err(refuse)?;
        num_tokens += u64::from(scaled(request.num_prompt_tokens, settings.token_scale));
        if requests.len() == MAX_REQUESTS || num_tokens > MAX_TOTAL_TOKENS {
            let reason = format!(
                "more than {MAX_REQUESTS} requests or {MAX_TOTAL_TOKENS} prompt tokens; take fewer with --requests"
            );
            return Err(refuse(reason));
        }
        requests.push(request);
    }
    requests.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let first = requests.first().ok_or_else(|| TraceError::Empty(settings.file.clone()))?.seconds;
    let arrival = |(index, request): (usize, &Request)| Arrival {
        seconds: (request.seconds - first) * settings.time_scale,
        prompt: prompt(index as u32, scaled(request.num_prompt_tokens, settings.token_scale), settings),
        num_generated_tokens: scaled(request.num_generated_tokens, settings.token_scale),
    };
    Ok(requests.iter().enumerate().map(arrival).collect())
}

fn parse(text: &str) -> Result<Request, String> {
    let mut fields = text.split(',').map(str::trim);
    let (Some(time), Some(prompt), Some(generated), None) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err(format!("{} fields instead of 3", text.split(',').count()));
    };
    let seconds = match time.parse::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let time: DateTime = time.parse().map_err(|_| format!("`{time}` is no time"))?;
            let since = time.duration_since(DateTime::new(2000, 1, 1, 0, 0, 0, 0).expect("a date"));
            since.as_secs_f64()
        }
    };
    if !seconds.is_finite() || seconds.abs() > MAX_SECONDS {
        return Err(format!("`{time}` is no time"));
    }
    let count = |text: &str| {
        let count: Option<u32> = text.parse().ok().filter(|&count| (1..=MAX_TOKENS).contains(&count));
        count.ok_or_else(|| format!("`{text}` is no number of tokens from 1 to {MAX_TOKENS}"))
    };
    Ok(Request { seconds, num_prompt_tokens: count(prompt)?, num_generated_tokens: count(generated)? })
}

fn scaled(num_tokens: u32, scale: f64) -> u32 {
    (f64::from(num_tokens) * scale).round().clamp(1.0, f64::from(MAX_TOKENS)) as u32
}

/// Tokens that are the request's own after the shared beginning.
fn prompt(index: u32, len: u32, settings: &TraceSettings) -> Arc<[u32]> {
    let shared = settings.shared_prefix_len.min(len);
    let prefix = index % settings.num_shared_prefixes.max(1);
    let token = |position: u32| {
        let owner = if position < shared { u64::from(prefix) } else { u64::from(index) + (1 << 32) };
        (mix(owner << 24 | u64::from(position)) % u64::from(settings.vocab_size.max(1))) as u32
    };
    (0..len).map(token).collect()
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> (tempfile::TempDir, TraceSettings) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.csv");
        std::fs::write(&file, text).unwrap();
        let settings = TraceSettings {
            file,
            num_requests: None,
            time_scale: 0.5,
            token_scale: 0.1,
            shared_prefix_len: 4,
            num_shared_prefixes: 2,
            vocab_size: 1000,
        };
        (folder, settings)
    }

    #[test]
    fn times_and_lengths_are_scaled_and_beginnings_shared_in_turn() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n\
                    2023-11-16 18:17:03.9800000,100,20\r\n2023-11-16 18:17:05.9800000,100,1\r\n\
                    2023-11-16 18:17:07.9800000,20,1\r\n";
        let (_folder, settings) = settings(text);
        let arrivals = read(&settings).unwrap();
        assert_eq!(arrivals.iter().map(|a| a.seconds).collect::<Vec<_>>(), [0.0, 1.0, 2.0]);
        assert_eq!(arrivals.iter().map(|a| a.prompt.len()).collect::<Vec<_>>(), [10, 10, 2]);
        assert_eq!(arrivals.iter().map(|a| a.num_generated_tokens).collect::<Vec<_>>(), [2, 1, 1]);
        assert_eq!(arrivals[0].prompt[..2], arrivals[2].prompt[..]);
        assert_ne!(arrivals[0].prompt[..4], arrivals[1].prompt[..4]);
        let few = TraceSettings { num_requests: Some(1), ..settings };
        assert_eq!(read(&few).unwrap(), arrivals[..1]);
    }

    #[test]
    fn a_wrong_line_is_named_with_what_is_wrong() {
        let cases = [
            ("0,1,1\nx,1,1\n", "line 2: `x` is no time"),
            ("0,1\n", "line 1: 2 fields instead of 3"),
            ("0,0,1\n", "line 1: `0` is no number of tokens"),
            ("0,1,-1\n", "line 1: `-1` is no number of tokens"),
            ("nan,1,1\n", "no requests"),
            ("0,1,1\nnan,1,1\n", "line 2: `nan` is no time"),
            ("0,1,1\n1e308,1,1\n", "line 2: `1e308` is no time"),
            ("", "no requests"),
        ];
        for (text, wanted) in cases {
            let (_folder, settings) = settings(text);
            let error = read(&settings).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text:?}: {error}");
        }
        let (_folder, long) = settings(&"1".repeat(5000));
        assert!(read(&long).unwrap_err().to_string().contains("line 1: "));
    }
}
