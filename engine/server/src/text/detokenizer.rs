//! Token ids to text as they come, whole characters only.

use super::Tokenizer;
use super::stop::{StopMatcher, StopScan};

/// How a sequence's tokens become text.
#[derive(Clone, Debug)]
pub struct DetokenizerOptions {
    /// Strings that end the text. Their number and length are the caller's to bound; empty ones are ignored.
    pub stop: Vec<String>,
    /// Whether the matched stop string is part of the text.
    pub include_stop_str_in_output: bool,
    /// Whether special tokens (control tokens such as end of sequence) are left out of the text.
    pub skip_special_tokens: bool,
}

impl Default for DetokenizerOptions {
    fn default() -> Self {
        Self { stop: Vec::new(), include_stop_str_in_output: false, skip_special_tokens: true }
    }
}

/// What a token added to the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Text that can leave now; often empty, since unfinished characters and possible stop strings are held back.
    pub text: String,
    /// The stop string that ended the text with this token. Later tokens add nothing.
    pub stop: Option<String>,
}

/// One sequence's incremental detokenizer.
///
/// The text of all deltas is [`Tokenizer::decode`] of all tokens, up to the first stop string, however the tokens come.
/// A leading space of the first token stays: generated text continues a prompt.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Tokenizer,
    utf8: Utf8Decoder,
    stops: StopMatcher,
    include_stop: bool,
    skip_special: bool,
    stopped: bool,
}

impl Detokenizer {
    /// A detokenizer at the beginning of a sequence's output.
    pub fn new(tokenizer: Tokenizer, options: DetokenizerOptions) -> Self {
        Self {
            tokenizer,
            utf8: Utf8Decoder::default(),
            stops: StopMatcher::new(options.stop),
            include_stop: options.include_stop_str_in_output,
            skip_special: options.skip_special_tokens,
            stopped: false,
        }
    }

    /// Adds a token. An id outside the vocabulary adds no text.
    pub fn push(&mut self, token_id: u32) -> Delta {
        if self.stopped || (self.skip_special && self.tokenizer.is_special(token_id)) {
            return Delta::default();
        }
        let text = self.utf8.push(self.tokenizer.token_bytes(token_id));
        match self.stops.push(&text) {
            StopScan::Text(text) => Delta { text, stop: None },
            StopScan::Stopped { mut before, stop } => {
                self.stopped = true;
                if self.include_stop {
                    before.push_str(&stop);
                }
                Delta { text: before, stop: Some(stop) }
            }
        }
    }

    /// Gives out what was held back, at the end of the sequence. A character that was cut off is left out.
    pub fn finish(&mut self) -> String {
        self.stopped = true;
        self.stops.finish()
    }
}

/// Bytes to text: invalid bytes become U+FFFD, an unfinished character waits for its rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Utf8Decoder {
    unfinished: Vec<u8>,
}

impl Utf8Decoder {
    /// Takes bytes in and gives out the characters that are complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        self.unfinished.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = self.unfinished.as_slice();
        let kept = loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    break 0;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(invalid) = error.error_len() else { break after.len() };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &after[invalid..];
                }
            }
        };
        self.unfinished.drain(..self.unfinished.len() - kept);
        text
    }
}
