//! A strict reader of the Prometheus text format, version 0.0.4.

/// One sample.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    /// Between the braces.
    pub(crate) labels: String,
    pub(crate) value: f64,
}

/// Reads a page. Panics where a line is malformed, a family has no help or type or appears twice, or a sample's name
/// does not follow from its family's type.
pub(crate) fn parse(page: &str) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut seen = Vec::new();
    let (mut help, mut family, mut kind) = ("", "", "");
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').expect("a help text").0;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            (family, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(family, help, "help and type of the same family");
            assert!(!seen.contains(&family), "{family} appears twice");
            seen.push(family);
        } else {
            let sample = sample(line);
            let suffix =
                sample.name.strip_prefix(family).unwrap_or_else(|| panic!("{line} is not of {family}"));
            let allowed: &[&str] = match kind {
                "counter" | "gauge" => &[""],
                "histogram" => &["_bucket", "_sum", "_count"],
                other => panic!("type {other} of {family}"),
            };
            assert!(allowed.contains(&suffix), "{line} does not belong to the {kind} {family}");
            assert!(kind != "counter" || family.ends_with("_total"), "{family} is a counter without _total");
            samples.push(sample);
        }
    }
    samples
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').expect("a closing brace")),
        None => (series, ""),
    };
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    assert!(!name.is_empty() && name.chars().all(valid), "name of {line}");
    Sample { name: name.to_owned(), labels: labels.to_owned(), value: value.parse().expect("a number") }
}
