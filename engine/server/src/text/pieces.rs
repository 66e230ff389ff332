//! What each token id stands for, in bytes.

/// The bytes of every token and whether it is special, by id.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    special: Vec<bool>,
    longest: usize,
}

impl Pieces {
    /// Adds the next id.
    pub(super) fn push(&mut self, bytes: &[u8], special: bool) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        self.special.push(special);
        self.longest = self.longest.max(bytes.len());
    }

    /// The bytes of `id`; empty outside the vocabulary.
    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start..end]
    }

    /// Whether `id` is a special token.
    pub(super) fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }

    /// How many ids there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of the longest token.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }
}

/// How a vocabulary writes bytes as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceCoding {
    /// GPT-2's: each byte is one printable character.
    ByteLevel,
    /// SentencePiece's: U+2581 is a space, `<0xNN>` is a byte.
    SentencePiece,
}

impl PieceCoding {
    /// The bytes that `piece` stands for.
    pub(super) fn decode(self, piece: &str) -> Vec<u8> {
        match self {
            Self::ByteLevel => {
                let bytes: Option<Vec<u8>> = piece.chars().map(byte_of_char).collect();
                bytes.unwrap_or_else(|| piece.as_bytes().to_vec())
            }
            Self::SentencePiece => match byte_token(piece) {
                Some(byte) => vec![byte],
                None => piece.replace('\u{2581}', " ").into_bytes(),
            },
        }
    }
}

/// GPT-2's table backwards: printable Latin-1 characters are themselves, the other bytes follow from U+0100 on in order.
fn byte_of_char(c: char) -> Option<u8> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    match u32::from(c) {
        code @ 0..=0xff => printable(code).then_some(code as u8),
        code => {
            let index = (code - 0x100) as usize;
            (0..=0xffu32).filter(|&byte| !printable(byte)).nth(index).map(|byte| byte as u8)
        }
    }
}

/// The byte of a byte-fallback token, `<0x0A>`.
fn byte_token(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_level_characters_stand_for_all_256_bytes() {
        let mut bytes: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of_char).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!(PieceCoding::ByteLevel.decode("ĠaĊ"), b" a\n");
    }

    #[test]
    fn a_piece_outside_the_byte_table_is_its_own_text() {
        assert_eq!(PieceCoding::ByteLevel.decode("a b"), b"a b");
    }

    #[test]
    fn sentencepiece_tokens_are_bytes_or_text_with_spaces() {
        assert_eq!(PieceCoding::SentencePiece.decode("<0xE2>"), [0xe2]);
        assert_eq!(PieceCoding::SentencePiece.decode("\u{2581}the"), b" the");
        assert_eq!(PieceCoding::SentencePiece.decode("<0xZZ>"), b"<0xZZ>");
    }
}
