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
    /// No stop string ends in the text of this many tokens.
    pub min_tokens: u32,
    /// Whether special tokens (control tokens such as end of sequence) are left out of the text.
    pub skip_special_tokens: bool,
}

impl Default for DetokenizerOptions {
    fn default() -> Self {
        Self { stop: Vec::new(), include_stop_str_in_output: false, min_tokens: 0, skip_special_tokens: true }
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
    /// Tokens still to come whose text is exempt from stop strings.
    num_exempt: u32,
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
            num_exempt: options.min_tokens,
            skip_special: options.skip_special_tokens,
            stopped: false,
        }
    }

    /// Adds a token. An id outside the vocabulary adds no text.
    pub fn push(&mut self, token_id: u32) -> Delta {
        let exempt = self.num_exempt > 0;
        self.num_exempt = self.num_exempt.saturating_sub(1);
        if self.stopped || (self.skip_special && self.tokenizer.is_special(token_id)) {
            return Delta::default();
        }
        let text = self.utf8.push(self.tokenizer.token_bytes(token_id));
        match self.stops.push(&text, exempt) {
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

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use proptest::prelude::*;

    fn detokenizer(stop: &[&str], include_stop_str_in_output: bool) -> Detokenizer {
        let stop = stop.iter().map(|&stop| stop.to_owned()).collect();
        let options =
            DetokenizerOptions { stop, include_stop_str_in_output, ..DetokenizerOptions::default() };
        Detokenizer::new(testing::tokenizer(), options)
    }

    /// Every byte of `text` as a token of its own.
    fn bytewise(text: &str) -> Vec<u32> {
        let tokenizer = testing::tokenizer();
        let id_of = |byte: u8| {
            (0..256).find(|&id| tokenizer.token_bytes(id) == [byte]).expect("all bytes are tokens")
        };
        text.bytes().map(id_of).collect()
    }

    /// All text of `ids` and the stop string that ended it.
    fn run(mut detokenizer: Detokenizer, ids: &[u32]) -> (String, Option<String>) {
        let (mut text, mut matched) = (String::new(), None);
        for &id in ids {
            let delta = detokenizer.push(id);
            text.push_str(&delta.text);
            matched = matched.or(delta.stop);
        }
        text.push_str(&detokenizer.finish());
        (text, matched)
    }

    #[test]
    fn an_emoji_leaves_whole_with_its_last_byte() {
        let mut detokenizer = detokenizer(&[], false);
        let texts: Vec<String> = bytewise("a🙂").into_iter().map(|id| detokenizer.push(id).text).collect();
        assert_eq!(texts, ["a", "", "", "", "🙂"]);
    }

    #[test]
    fn a_character_cut_off_by_the_end_is_left_out() {
        let ids = bytewise("a🙂");
        assert_eq!(run(detokenizer(&[], false), &ids[..3]), ("a".to_owned(), None));
    }

    #[test]
    fn a_possible_stop_string_waits_and_leaves_when_it_does_not_come() {
        let mut detokenizer = detokenizer(&["STOP"], false);
        let texts: Vec<String> =
            bytewise("aSTxSTO").into_iter().map(|id| detokenizer.push(id).text).collect();
        assert_eq!(texts, ["a", "", "", "STx", "", "", ""]);
        assert_eq!(detokenizer.finish(), "STO");
    }

    #[test]
    fn a_stop_string_across_tokens_and_inside_characters_ends_the_text() {
        let ids = bytewise("x é🙂y");
        let (before, with) =
            (run(detokenizer(&["é🙂"], false), &ids), run(detokenizer(&["é🙂"], true), &ids));
        assert_eq!(before, ("x ".to_owned(), Some("é🙂".to_owned())));
        assert_eq!(with, ("x é🙂".to_owned(), Some("é🙂".to_owned())));
    }

    #[test]
    fn nothing_follows_a_stop_string() {
        let mut detokenizer = detokenizer(&["b"], true);
        let ids = bytewise("abc");
        assert_eq!(detokenizer.push(ids[0]).text, "a");
        assert_eq!(detokenizer.push(ids[1]), Delta { text: "b".to_owned(), stop: Some("b".to_owned()) });
        assert_eq!(detokenizer.push(ids[2]), Delta::default());
        assert_eq!(detokenizer.finish(), "");
    }

    #[test]
    fn a_stop_string_inside_one_token_cuts_the_token() {
        let ids = testing::tokenizer().encode("hello", false).unwrap();
        assert_eq!(ids.len(), 1);
        assert_eq!(run(detokenizer(&["ell"], false), &ids), ("h".to_owned(), Some("ell".to_owned())));
    }

    #[test]
    fn special_tokens_are_text_only_when_asked_for() {
        let tokenizer = testing::tokenizer();
        let ids = tokenizer.encode("a<|end|><think>", false).unwrap();
        assert_eq!(run(detokenizer(&[], false), &ids).0, "a<think>");
        let options = DetokenizerOptions { skip_special_tokens: false, ..DetokenizerOptions::default() };
        assert_eq!(run(Detokenizer::new(tokenizer, options), &ids).0, "a<|end|><think>");
    }

    #[test]
    fn unknown_ids_add_nothing() {
        assert_eq!(run(detokenizer(&[], false), &[u32::MAX, 1 << 20]).0, "");
    }

    /// What the detokenizer must equal: look for each stop string in each longer beginning of the whole text, from
    /// the byte after `num_exempt` on.
    fn naive(text: &str, num_exempt: usize, stops: &[String], include: bool) -> (String, Option<String>) {
        for end in (num_exempt + 1..=text.len()).filter(|&end| text.is_char_boundary(end)) {
            let longest =
                stops.iter().filter(|stop| text[..end].ends_with(stop.as_str())).max_by_key(|s| s.len());
            if let Some(stop) = longest {
                let kept = if include { end } else { end - stop.len() };
                return (text[..kept].to_owned(), Some(stop.clone()));
            }
        }
        (text.to_owned(), None)
    }

    fn any_token() -> impl Strategy<Value = u32> {
        let len = testing::tokenizer().vocab_size() as u32;
        let letters = bytewise("ab🙂é");
        prop_oneof![3 => proptest::sample::select(letters), 1 => 0..len]
    }

    proptest! {
        #[test]
        fn deltas_together_are_the_text_decoded_at_once(ids in prop::collection::vec(any_token(), 0..60)) {
            let whole = testing::tokenizer().decode(&ids, true);
            prop_assert_eq!(run(detokenizer(&[], false), &ids), (whole, None));
        }

        #[test]
        fn stop_strings_match_as_a_search_of_the_whole_text_does(
            ids in prop::collection::vec(any_token(), 0..60),
            stops in prop::collection::vec("[ab🙂é]{1,4}|<\\|end", 0..4),
            include in any::<bool>(),
            skip in any::<bool>(),
            min_tokens in prop_oneof![2 => Just(0), 1 => 0usize..20],
        ) {
            let options = DetokenizerOptions {
                stop: stops.clone(),
                include_stop_str_in_output: include,
                min_tokens: min_tokens as u32,
                skip_special_tokens: skip,
            };
            let tokenizer = testing::tokenizer();
            let whole = tokenizer.decode(&ids, skip);
            let num_exempt = tokenizer.decode(&ids[..min_tokens.min(ids.len())], skip).len();
            let streamed = run(Detokenizer::new(tokenizer, options), &ids);
            prop_assert_eq!(streamed, naive(&whole, num_exempt, &stops, include));
        }

        #[test]
        fn a_text_cut_into_tokens_anywhere_streams_whole_characters_and_no_more_than_is_safe(
            text in "[ab é🙂\u{10ffff}]{0,20}",
            cuts in prop::collection::vec(any::<bool>(), 100),
            stop in "[ab🙂é]{1,3}",
        ) {
            // Words and bytes mixed: each piece is encoded by itself, or byte by byte.
            let tokenizer = testing::tokenizer();
            let mut ids = Vec::new();
            for (c, &bytes) in text.chars().zip(&cuts) {
                let c = c.to_string();
                ids.extend(if bytes { bytewise(&c) } else { tokenizer.encode(&c, false).unwrap() });
            }
            let mut detokenizer = detokenizer(&[&stop], false);
            let mut streamed = String::new();
            for id in ids {
                let delta = detokenizer.push(id);
                streamed.push_str(&delta.text);
                prop_assert!(text.starts_with(&streamed), "{streamed:?} is no beginning of {text:?}");
                // What has left is never taken back: no stop string begins in it.
                let end = text.find(&stop).unwrap_or(text.len());
                prop_assert!(streamed.len() <= end, "{streamed:?} reaches into the stop string {stop:?}");
            }
        }
    }
}
