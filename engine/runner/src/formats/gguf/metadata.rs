//! GGUF's key-value pairs.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::cursor::Cursor;
use crate::formats::MappedFile;
use crate::formats::error::Reason;

const MAX_KEY_BYTES: u64 = 65_535;
const MAX_STRING_BYTES: u64 = 16 << 20;
const MAX_ARRAY_LEN: u64 = 1 << 24;
const MAX_NESTING: usize = 4;

/// Type of a value, by its number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl Type {
    fn read(cursor: &mut Cursor<'_>, what: &str) -> Result<Self, Reason> {
        use Type::*;
        const BY_NUMBER: [Type; 13] = [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64];
        let at = cursor.position();
        let number = cursor.u32(what)?;
        BY_NUMBER
            .get(number as usize)
            .copied()
            .ok_or_else(|| format!("{what} at byte {at} has the unknown value type {number}"))
    }

    /// Bytes of a value with a fixed size.
    fn size(self) -> Option<usize> {
        match self {
            Type::U8 | Type::I8 | Type::Bool => Some(1),
            Type::U16 | Type::I16 => Some(2),
            Type::U32 | Type::I32 | Type::F32 => Some(4),
            Type::U64 | Type::I64 | Type::F64 => Some(8),
            Type::String | Type::Array => None,
        }
    }
}

/// A value; strings and arrays stay in the file and are known by their place, so that a header costs no memory that a
/// hostile file could choose.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Integer(i128),
    Float(f64),
    Bool(bool),
    String(Range<usize>),
    Array { element: Type, len: usize, range: Range<usize> },
}

/// Key-value pairs by key, each checked to lie within the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries(HashMap<String, Value>);

impl Entries {
    /// Reads `count` pairs; `bytes` are what `cursor` reads.
    pub(super) fn read(bytes: &[u8], cursor: &mut Cursor<'_>, count: u64) -> Result<Self, Reason> {
        let mut entries = HashMap::new();
        for _ in 0..count {
            let key = cursor.string(MAX_KEY_BYTES, "a metadata key")?;
            let key = text(bytes, &key).to_owned();
            let ty = Type::read(cursor, &key)?;
            let value = read_value(cursor, ty, &key)?;
            if entries.insert(key.clone(), value).is_some() {
                return Err(format!("the metadata key `{key}` stands there twice"));
            }
        }
        Ok(Self(entries))
    }

    /// An unsigned integer of any width.
    pub(super) fn unsigned(&self, key: &str) -> Option<u64> {
        match self.0.get(key)? {
            Value::Integer(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }
}

fn read_value(cursor: &mut Cursor<'_>, ty: Type, key: &str) -> Result<Value, Reason> {
    Ok(match ty {
        Type::U8 => Value::Integer(u8::from_le_bytes(cursor.array(key)?).into()),
        Type::I8 => Value::Integer(i8::from_le_bytes(cursor.array(key)?).into()),
        Type::U16 => Value::Integer(u16::from_le_bytes(cursor.array(key)?).into()),
        Type::I16 => Value::Integer(i16::from_le_bytes(cursor.array(key)?).into()),
        Type::U32 => Value::Integer(u32::from_le_bytes(cursor.array(key)?).into()),
        Type::I32 => Value::Integer(i32::from_le_bytes(cursor.array(key)?).into()),
        Type::U64 => Value::Integer(u64::from_le_bytes(cursor.array(key)?).into()),
        Type::I64 => Value::Integer(i64::from_le_bytes(cursor.array(key)?).into()),
        Type::F32 => Value::Float(f32::from_le_bytes(cursor.array(key)?).into()),
        Type::F64 => Value::Float(f64::from_le_bytes(cursor.array(key)?)),
        Type::Bool => Value::Bool(cursor.array::<1>(key)? != [0]),
        Type::String => Value::String(cursor.string(MAX_STRING_BYTES, key)?),
        Type::Array => {
            let (element, len, range) = skip_array(cursor, key, 1)?;
            Value::Array { element, len, range }
        }
    })
}

/// Steps over an array and checks all that is in it.
fn skip_array(
    cursor: &mut Cursor<'_>,
    key: &str,
    depth: usize,
) -> Result<(Type, usize, Range<usize>), Reason> {
    if depth > MAX_NESTING {
        return Err(format!("the arrays in `{key}` are nested more than {MAX_NESTING} deep"));
    }
    let element = Type::read(cursor, key)?;
    let len = cursor.u64(key)?;
    if len > MAX_ARRAY_LEN {
        return Err(format!("the array `{key}` claims {len} elements, at most {MAX_ARRAY_LEN} are allowed"));
    }
    let start = cursor.position();
    match element.size() {
        Some(size) => {
            cursor.skip(len * size as u64, key)?;
        }
        None => {
            for _ in 0..len {
                if element == Type::String {
                    cursor.string(MAX_STRING_BYTES, key)?;
                } else {
                    skip_array(cursor, key, depth + 1)?;
                }
            }
        }
    }
    Ok((element, len as usize, start..cursor.position()))
}

fn text<'a>(bytes: &'a [u8], range: &Range<usize>) -> &'a str {
    std::str::from_utf8(&bytes[range.clone()]).expect("checked when the header was read")
}

/// GGUF's key-value pairs. An accessor answers `None` where the key is absent or has another type; integers of any
/// width answer where the value fits.
#[derive(Clone, Debug)]
pub struct Metadata {
    file: Arc<MappedFile>,
    entries: Entries,
}

impl Metadata {
    pub(super) fn new(file: Arc<MappedFile>, entries: Entries) -> Self {
        Self { file, entries }
    }

    /// The file that the pairs are from.
    pub fn path(&self) -> &std::path::Path {
        self.file.path()
    }

    /// Whether the key is there, with any type.
    pub fn contains(&self, key: &str) -> bool {
        self.entries.0.contains_key(key)
    }

    /// A string.
    pub fn get_str(&self, key: &str) -> Option<&str> {
        match self.entries.0.get(key)? {
            Value::String(range) => Some(text(self.file.bytes(), range)),
            _ => None,
        }
    }

    /// An unsigned integer that fits 32 bits.
    pub fn get_u32(&self, key: &str) -> Option<u32> {
        self.get_u64(key)?.try_into().ok()
    }

    /// An unsigned integer.
    pub fn get_u64(&self, key: &str) -> Option<u64> {
        self.entries.unsigned(key)
    }

    /// A floating-point number, as F32.
    pub fn get_f32(&self, key: &str) -> Option<f32> {
        match self.entries.0.get(key)? {
            Value::Float(value) => Some(*value as f32),
            _ => None,
        }
    }

    /// A truth value.
    pub fn get_bool(&self, key: &str) -> Option<bool> {
        match self.entries.0.get(key)? {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// An array of strings.
    pub fn array_str(&self, key: &str) -> Option<Vec<&str>> {
        let Value::Array { element: Type::String, len, range } = self.entries.0.get(key)? else {
            return None;
        };
        let bytes = &self.file.bytes()[range.clone()];
        let mut cursor = Cursor::new(bytes);
        let next = |_| cursor.string(MAX_STRING_BYTES, key).ok().map(|range| text(bytes, &range));
        (0..*len).map(next).collect()
    }

    /// An array of integers, each as I32.
    pub fn array_i32(&self, key: &str) -> Option<Vec<i32>> {
        self.array(key, |value| match value {
            Value::Integer(value) => value.try_into().ok(),
            _ => None,
        })
    }

    /// An array of floating-point numbers, each as F32.
    pub fn array_f32(&self, key: &str) -> Option<Vec<f32>> {
        self.array(key, |value| match value {
            Value::Float(value) => Some(value as f32),
            _ => None,
        })
    }

    fn array<T>(&self, key: &str, convert: impl Fn(Value) -> Option<T>) -> Option<Vec<T>> {
        let Value::Array { element, len, range } = self.entries.0.get(key)? else { return None };
        element.size()?;
        let mut cursor = Cursor::new(&self.file.bytes()[range.clone()]);
        (0..*len).map(|_| convert(read_value(&mut cursor, *element, key).ok()?)).collect()
    }
}
