//! Byte-level BPE (`tokenizer.ggml.model = gpt2`).

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior};

use super::{GgufVocab, TextError};

/// How GPT-2 splits text into words (Radford et al. 2019, published with the model).
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
/// Llama 3's: contractions in any case, numbers in groups of three, line ends kept with what is before them.
const LLAMA3: &str = concat!(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// Qwen 2's: as Llama 3's with single digits.
const QWEN2: &str = concat!(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// One digit.
const DIGIT: &str = r"\p{N}";

/// What `tokenizer.ggml.pre` says: the patterns that split text one after the other, and whether a word that is a
/// token stays whole even if no merges lead to it.
struct PreTokenizer {
    patterns: &'static [&'static str],
    ignore_merges: bool,
}

impl PreTokenizer {
    fn by_name(name: &str) -> Result<Self, TextError> {
        let (patterns, ignore_merges): (&[&str], bool) = match name {
            "gpt-2" => (&[GPT2], false),
            "smollm" => (&[DIGIT, GPT2], false),
            "llama-bpe" => (&[LLAMA3], true),
            "qwen2" => (&[QWEN2], false),
            "default" => (&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"], false),
            other => {
                return Err(TextError::Unsupported {
                    what: "tokenizer.ggml.pre",
                    name: other.to_owned(),
                    supported: "default, gpt-2, llama-bpe, qwen2, smollm",
                });
            }
        };
        Ok(Self { patterns, ignore_merges })
    }

    fn build(&self) -> Sequence {
        let split = |pattern: &&str| {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
            PreTokenizerWrapper::Split(split.expect("the patterns above are valid"))
        };
        let bytes = PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, false));
        Sequence::new(self.patterns.iter().map(split).chain([bytes]).collect())
    }
}

/// The encoder without added tokens.
pub(super) fn encoder(vocab: &GgufVocab) -> Result<tokenizers::Tokenizer, TextError> {
    let pre_tokenizer = PreTokenizer::by_name(vocab.pre.as_deref().unwrap_or("default"))?;
    let merges: Result<Vec<(String, String)>, TextError> =
        vocab.merges.iter().map(|merge| pair(merge)).collect();
    let ids: Vocab = vocab.tokens.iter().cloned().zip(0..).collect();
    let bpe = BPE::builder()
        .vocab_and_merges(ids, merges?)
        .ignore_merges(pre_tokenizer.ignore_merges)
        .build()
        .map_err(|error| TextError::invalid("tokenizer.ggml.merges", error.to_string()))?;
    let mut encoder = tokenizers::Tokenizer::new(bpe);
    encoder.with_pre_tokenizer(Some(pre_tokenizer.build()));
    Ok(encoder)
}

/// Both sides of a merge, which are separated by a space and hold none.
fn pair(merge: &str) -> Result<(String, String), TextError> {
    match merge.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() => {
            Ok((left.to_owned(), right.to_owned()))
        }
        _ => Err(TextError::invalid("tokenizer.ggml.merges", format!("`{merge}` is not two tokens"))),
    }
}
