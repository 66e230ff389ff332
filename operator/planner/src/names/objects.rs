//! Names of generated objects: valid DNS labels, at most 63 characters, unique for each LLMService.
//!
//! A name that is already a label that fits is kept. Any other is cut and gets a hash of the whole name. So is one
//! that looks as if it had such a hash, so that no kept name can equal a cut one.

use crate::hash::{self, HASH_LEN};

/// Longest generated name.
pub const MAX_GENERATED_NAME: usize = 63;

/// Name of a pod. `slot` is the lowest number that no pod of the revision uses.
pub fn pod_name(service: &str, revision: &str, slot: u32) -> String {
    let suffix = format!("-{revision}-{slot}");
    stem(service, MAX_GENERATED_NAME.saturating_sub(suffix.len())) + &suffix
}

/// Name of the ControllerRevision with hash `revision`.
pub fn revision_name(service: &str, revision: &str) -> String {
    let suffix = format!("-{revision}");
    stem(service, MAX_GENERATED_NAME.saturating_sub(suffix.len())) + &suffix
}

/// Name of the Service in front of the pods: that of the LLMService.
pub fn service_name(service: &str) -> String {
    stem(service, MAX_GENERATED_NAME)
}

fn stem(name: &str, max_len: usize) -> String {
    if name.len() <= max_len && is_label(name) && !looks_hashed(name) {
        return name.to_owned();
    }
    let clean: String =
        name.chars().map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' }).collect();
    let prefix = if clean.starts_with(|c: char| c.is_ascii_lowercase()) { "" } else { "s" };
    let keep = max_len.saturating_sub(HASH_LEN + 1);
    let mut cut: String = prefix.chars().chain(clean.chars()).take(keep).collect();
    cut.push('-');
    cut + &hash::short(name.as_bytes())
}

/// A label as Services want it (RFC 1035): starts with a letter.
fn is_label(name: &str) -> bool {
    let valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    name.bytes().all(valid) && name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.ends_with('-')
}

fn looks_hashed(name: &str) -> bool {
    name.rsplit_once('-')
        .is_some_and(|(_, tail)| tail.len() == HASH_LEN && tail.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const REVISION: &str = "0123456789";

    #[test]
    fn a_short_label_is_kept() {
        assert_eq!(pod_name("smollm2", REVISION, 0), "smollm2-0123456789-0");
        assert_eq!(revision_name("smollm2", REVISION), "smollm2-0123456789");
        assert_eq!(service_name("smollm2"), "smollm2");
    }

    #[test]
    fn dots_and_leading_digits_become_valid_and_stay_apart() {
        let names = ["llama3.1", "llama3-1", "3b", "s3b"];
        let made: HashSet<_> = names.iter().map(|n| service_name(n)).collect();
        assert_eq!(made.len(), names.len());
        assert!(made.iter().all(|n| is_label(n)), "{made:?}");
    }

    #[test]
    fn a_name_that_equals_a_cut_one_is_cut_again() {
        let cut = stem("llama3.1", 40);
        assert_ne!(stem(&cut, 40), cut);
    }

    proptest! {
        #[test]
        fn generated_names_are_valid_short_and_unique(
            names in proptest::collection::hash_set("[a-z0-9]([-.a-z0-9]{0,80}[a-z0-9])?", 1..40),
            slots in proptest::collection::hash_set(any::<u32>(), 1..4),
        ) {
            let mut made = HashSet::new();
            for name in &names {
                for slot in &slots {
                    prop_assert!(made.insert(pod_name(name, REVISION, *slot)));
                }
                prop_assert!(made.insert(revision_name(name, REVISION)));
                prop_assert!(made.insert(service_name(name)));
            }
            for name in &made {
                prop_assert!(is_label(name) && name.len() <= MAX_GENERATED_NAME, "{}", name);
            }
        }
    }
}
