//! Counting in messages.

/// `1 replica`, `2 replicas`.
pub(crate) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// The verb for so many things.
pub(crate) fn verb(number: usize, one: &'static str, many: &'static str) -> &'static str {
    if number == 1 { one } else { many }
}
