//! Lists with a limit that holds while they are read, not only afterwards.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// At most `N` elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpTo<T, const N: usize>(pub(super) Vec<T>);

impl<T, const N: usize> Default for UpTo<T, N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for UpTo<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T, const N: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for List<T, N> {
            type Value = UpTo<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {N} elements")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<UpTo<T, N>, A::Error> {
                let mut list = Vec::new();
                while let Some(element) = seq.next_element()? {
                    if list.len() == N {
                        return Err(A::Error::custom(format!("more than {N} elements")));
                    }
                    list.push(element);
                }
                Ok(UpTo(list))
            }
        }

        deserializer.deserialize_seq(List(PhantomData))
    }
}

/// A value, or a list of at most `N`. Told apart by the first character, so that nothing is buffered in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OneOrMany<T, const N: usize> {
    One(T),
    Many(UpTo<T, N>),
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for OneOrMany<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let read = if raw.starts_with('[') {
            serde_json::from_str(raw).map(Self::Many)
        } else {
            serde_json::from_str(raw).map(Self::One)
        };
        read.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_beyond_its_limit_is_refused() {
        assert_eq!(serde_json::from_str::<UpTo<u32, 2>>("[1,2]").unwrap(), UpTo(vec![1, 2]));
        assert!(serde_json::from_str::<UpTo<u32, 2>>("[1,2,3]").is_err());
    }

    #[test]
    fn one_value_or_a_list_of_them() {
        type Strings = OneOrMany<String, 2>;
        assert_eq!(serde_json::from_str::<Strings>(r#""a""#).unwrap(), OneOrMany::One("a".into()));
        assert_eq!(
            serde_json::from_str::<Strings>(r#"["a"]"#).unwrap(),
            OneOrMany::Many(UpTo(vec!["a".into()]))
        );
        assert!(serde_json::from_str::<Strings>("3").is_err());
    }
}
