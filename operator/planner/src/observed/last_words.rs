//! The line of a log that tells why its program ended: what a container leaves behind is the tail of its log.

use jiff::Timestamp;

const LEVELS: [&str; 5] = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];

/// The last error in `log`, without time, level and target; the last line where none is marked as an error. A text of
/// several lines becomes one.
pub(super) fn last_words(log: &str) -> String {
    let lines: Vec<&str> = log.lines().map(str::trim).collect();
    let last_error = lines.iter().rposition(|line| is_error(line));
    let Some(first) = last_error.or_else(|| lines.iter().rposition(|line| !line.is_empty())) else {
        return String::new();
    };
    let rest = lines[first + 1..].iter().take_while(|line| goes_on(line)).copied();
    let words: Vec<&str> = std::iter::once(text_of(lines[first])).chain(rest).collect();
    words.join(" ")
}

fn is_error(line: &str) -> bool {
    let marked = line.starts_with("error: ") || line.starts_with("Error: ") || line.contains(" panicked at ");
    marked || record(line).is_some_and(|(level, _)| level == "ERROR")
}

/// Whether `line` belongs to the error above it. Usage and hints stand behind an empty line.
fn goes_on(line: &str) -> bool {
    !line.is_empty() && !line.starts_with("note: ") && record(line).is_none()
}

fn text_of(line: &str) -> &str {
    let text = record(line).map_or(line, |(_, text)| text);
    text.strip_prefix("error: ").or_else(|| text.strip_prefix("Error: ")).unwrap_or(text)
}

/// Level and text of a line such as `2026-01-01T00:00:00.5Z ERROR regatta_engine: the text`.
fn record(line: &str) -> Option<(&str, &str)> {
    let (time, rest) = line.split_once(' ')?;
    time.parse::<Timestamp>().ok()?;
    let (level, text) = rest.trim_start().split_once(' ')?;
    let is_target = |word: &str| word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_:".contains(&b));
    let text = match text.split_once(": ") {
        Some((target, text)) if is_target(target) => text,
        _ => text,
    };
    LEVELS.contains(&level).then_some((level, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_is_kept_without_its_prefix() {
        let log = "2026-01-01T00:00:00.000001Z  INFO regatta_engine::serve: listening on 0.0.0.0:8000\n\
                   2026-01-01T00:00:01.000001Z ERROR regatta_engine: /models/m: architecture 'x' is not supported\n";
        assert_eq!(last_words(log), "/models/m: architecture 'x' is not supported");
        let closing = format!("{log}2026-01-01T00:00:02Z  INFO regatta_engine: bye\n");
        assert_eq!(last_words(&closing), "/models/m: architecture 'x' is not supported");
    }

    #[test]
    fn usage_behind_an_error_is_left_out() {
        let log = "error: unexpected argument '--max-len' found\n\n  tip: a similar argument exists: '--max-model-len'\n\n\
                   Usage: regatta-engine serve <MODEL>\n\nFor more information, try '--help'.\n";
        assert_eq!(last_words(log), "unexpected argument '--max-len' found");
        let missing = "error: the following required arguments were not provided:\n  <MODEL>\n\nUsage: x\n";
        assert_eq!(last_words(missing), "the following required arguments were not provided: <MODEL>");
    }

    #[test]
    fn a_panic_is_told_with_its_message() {
        let log = "thread 'main' (1) panicked at src/a.rs:1:2:\nindex out of bounds\nnote: run with `RUST_BACKTRACE=1`\n";
        assert_eq!(last_words(log), "thread 'main' (1) panicked at src/a.rs:1:2: index out of bounds");
    }

    #[test]
    fn the_last_line_of_other_programs_is_kept() {
        let log = "Traceback (most recent call last):\n  File \"x.py\"\nValueError: no such dtype: int3\n\n";
        assert_eq!(last_words(log), "ValueError: no such dtype: int3");
        assert_eq!(last_words("/bin/sh: 1: engine: not found"), "/bin/sh: 1: engine: not found");
        assert_eq!(last_words("\n \n"), "");
    }
}
