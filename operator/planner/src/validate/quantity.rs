//! Kubernetes quantities, as far as they must be compared.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::SpecError;

pub(super) fn positive(
    field: &'static str,
    quantity: Option<Quantity>,
) -> Result<Option<Quantity>, SpecError> {
    match quantity {
        Some(q) if parse(&q.0).is_none_or(|v| v <= 0.0) => Err(SpecError::Quantity { field, value: q.0 }),
        valid => Ok(valid),
    }
}

pub(super) fn at_most(shared_memory: &Option<Quantity>, memory: &Option<Quantity>) -> Result<(), SpecError> {
    let value = |q: &Option<Quantity>| q.as_ref().and_then(|q| parse(&q.0));
    match (value(shared_memory), value(memory)) {
        (Some(shared), Some(all)) if shared > all => Err(SpecError::SharedMemory),
        _ => Ok(()),
    }
}

/// Value in base units. Close enough to compare sizes that people write.
fn parse(text: &str) -> Option<f64> {
    const SUFFIXES: [(&str, f64); 15] = [
        ("Ki", 1024.0),
        ("Mi", 1048576.0),
        ("Gi", 1073741824.0),
        ("Ti", 1099511627776.0),
        ("Pi", 1125899906842624.0),
        ("Ei", 1152921504606846976.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
    ];
    let suffix = SUFFIXES.iter().find_map(|(s, scale)| Some((text.strip_suffix(s)?, *scale)));
    let (number, scale) = suffix.unwrap_or((text, 1.0));
    let plain = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    let value: f64 = number.chars().all(plain).then(|| number.parse().ok())??;
    Some(value * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        assert_eq!(parse("500m"), Some(0.5));
        assert_eq!(parse("8Gi"), Some(8.0 * 1073741824.0));
        assert_eq!(parse("1e3"), Some(1000.0));
        assert_eq!(parse("2E"), Some(2e18));
        assert_eq!(parse("inf"), None);
        assert_eq!(parse("8GB"), None);
        assert_eq!(parse(""), None);
    }
}
