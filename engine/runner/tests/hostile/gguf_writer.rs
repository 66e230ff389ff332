//! Writes GGUF, well-formed or not.

/// A value with its type's number.
pub(crate) enum Value {
    U32(u32),
    F32(f32),
    String(&'static str),
    Strings(Vec<&'static str>),
    I32s(Vec<i32>),
    /// Type number and bytes as they are.
    Raw(u32, Vec<u8>),
}

/// A tensor; its data is zeros.
pub(crate) struct Tensor {
    pub(crate) name: String,
    /// The fastest dimension first, as in the file.
    pub(crate) dimensions: Vec<u64>,
    pub(crate) ty: u32,
    /// Absent: after the tensors before it.
    pub(crate) offset: Option<u64>,
}

/// A file to be written.
pub(crate) struct Gguf {
    pub(crate) magic: [u8; 4],
    pub(crate) version: u32,
    /// Absent: as many as there are.
    pub(crate) num_tensors: Option<u64>,
    pub(crate) num_entries: Option<u64>,
    pub(crate) entries: Vec<(String, Value)>,
    pub(crate) tensors: Vec<Tensor>,
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

impl Value {
    fn write(&self, out: &mut Vec<u8>) {
        let array = |out: &mut Vec<u8>, element: u32, len: usize| {
            out.extend(9u32.to_le_bytes());
            out.extend(element.to_le_bytes());
            out.extend((len as u64).to_le_bytes());
        };
        match self {
            Value::U32(value) => out.extend([4u32.to_le_bytes(), value.to_le_bytes()].concat()),
            Value::F32(value) => out.extend([6u32.to_le_bytes(), value.to_le_bytes()].concat()),
            Value::String(text) => {
                out.extend(8u32.to_le_bytes());
                string(out, text);
            }
            Value::Strings(texts) => {
                array(out, 8, texts.len());
                texts.iter().for_each(|text| string(out, text));
            }
            Value::I32s(values) => {
                array(out, 5, values.len());
                values.iter().for_each(|value| out.extend(value.to_le_bytes()));
            }
            Value::Raw(ty, bytes) => {
                out.extend(ty.to_le_bytes());
                out.extend(bytes);
            }
        }
    }
}

impl Gguf {
    /// A model of one layer that loads.
    pub(crate) fn tiny() -> Self {
        let sizes = [
            ("context_length", 64),
            ("embedding_length", 32),
            ("block_count", 1),
            ("feed_forward_length", 32),
            ("attention.head_count", 2),
            ("attention.head_count_kv", 1),
        ];
        let mut entries = vec![
            ("general.architecture".into(), Value::String("llama")),
            ("llama.attention.layer_norm_rms_epsilon".into(), Value::F32(1e-5)),
            ("tokenizer.ggml.tokens".into(), Value::Strings(vec!["a", "b", "c"])),
            ("tokenizer.ggml.token_type".into(), Value::I32s(vec![1, 1, 3])),
        ];
        entries.extend(sizes.map(|(name, size)| (format!("llama.{name}"), Value::U32(size))));
        let tensor = |(name, dimensions): (&str, &[u64])| Tensor {
            name: format!("{name}.weight"),
            dimensions: dimensions.to_vec(),
            ty: 0,
            offset: None,
        };
        let tensors: [(&str, &[u64]); 11] = [
            ("token_embd", &[32, 3]),
            ("output_norm", &[32]),
            ("blk.0.attn_norm", &[32]),
            ("blk.0.attn_q", &[32, 32]),
            ("blk.0.attn_k", &[32, 16]),
            ("blk.0.attn_v", &[32, 16]),
            ("blk.0.attn_output", &[32, 32]),
            ("blk.0.ffn_norm", &[32]),
            ("blk.0.ffn_gate", &[32, 32]),
            ("blk.0.ffn_up", &[32, 32]),
            ("blk.0.ffn_down", &[32, 32]),
        ];
        let tensors = tensors.map(tensor).into();
        Self { magic: *b"GGUF", version: 3, num_tensors: None, num_entries: None, entries, tensors }
    }

    /// The bytes before the data.
    pub(crate) fn header(&self) -> Vec<u8> {
        let mut out = [self.magic, self.version.to_le_bytes()].concat();
        out.extend(self.num_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.num_entries.unwrap_or(self.entries.len() as u64).to_le_bytes());
        for (key, value) in &self.entries {
            string(&mut out, key);
            value.write(&mut out);
        }
        let mut next = 0;
        for tensor in &self.tensors {
            string(&mut out, &tensor.name);
            out.extend((tensor.dimensions.len() as u32).to_le_bytes());
            tensor.dimensions.iter().for_each(|size| out.extend(size.to_le_bytes()));
            out.extend(tensor.ty.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(next).to_le_bytes());
            next = next.wrapping_add(tensor.dimensions.iter().fold(4, |size, &d| size.wrapping_mul(d)));
        }
        out
    }

    /// The file, with enough data for a well-formed index of F32 tensors.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        out.resize(out.len().next_multiple_of(32) + 32 * 1024, 0);
        out
    }
}
