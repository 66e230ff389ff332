//! The Jinja environment that published chat templates expect.

use std::io::{self, Write};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// Steps that a template may take: templates come with models and are not trusted. A long conversation takes some
/// ten thousand.
const MAX_TEMPLATE_STEPS: u64 = 20_000_000;
/// Nested macro calls and includes.
const MAX_TEMPLATE_DEPTH: usize = 100;
/// Widest `tojson(indent=...)`.
const MAX_INDENT: usize = 16;

/// An environment with whitespace control, Python's string and list methods, and the functions of `transformers`.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the default delimiters are valid"));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_fuel(Some(MAX_TEMPLATE_STEPS));
    environment.set_recursion_limit(MAX_TEMPLATE_DEPTH);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |format: String| strftime_now(&format));
    environment.add_filter("tojson", tojson);
    environment
}

/// The template with `{% generation %}` blocks, which mark training targets and are no Jinja statement, as plain blocks.
/// Their whitespace control stays.
pub(super) fn without_generation_blocks(source: &str) -> String {
    let mut kept = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else { break };
        let (before, tag_on) = rest.split_at(start);
        let (tag, after) = tag_on.split_at(length + 2);
        kept.push_str(before);
        match tag[2..length].trim_matches(|c: char| matches!(c, '-' | '+') || c.is_whitespace()) {
            "generation" => kept.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => kept.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => kept.push_str(tag),
        }
        rest = after;
    }
    kept + rest
}

/// The time now in UTC, in `format` as C's `strftime` takes it.
fn strftime_now(format: &str) -> Result<String, Error> {
    let now = Timestamp::now().to_zoned(TimeZone::UTC);
    jiff::fmt::strtime::format(format, &now)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
}

/// JSON as Python's `json.dumps(ensure_ascii=False)` writes it: models were trained on its spaces. Not HTML-escaped.
fn tojson(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    if options.get::<Option<bool>>("ensure_ascii")? == Some(true) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson(ensure_ascii=true) is not supported"));
    }
    options.assert_all_used()?;
    let mut json = Vec::new();
    let written = match indent {
        Some(width) => {
            let indent = vec![b' '; width.min(MAX_INDENT)];
            let formatter = PrettyFormatter::with_indent(&indent);
            value.serialize(&mut Serializer::with_formatter(&mut json, formatter))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut json, PythonFormatter)),
    };
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    Ok(Value::from_safe_string(String::from_utf8_lossy(&json).into_owned()))
}

/// `json.dumps` without indent: a space after each comma and colon.
struct PythonFormatter;

impl Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str, context: serde_json::Value) -> Result<String, Error> {
        environment().render_str(source, minijinja::value::Serde(context))
    }

    #[test]
    fn tojson_writes_what_python_writes() {
        let value = serde_json::json!({"v": {"b": [1, 2.5, null, true], "a": "<é>", "e": {}}});
        let compact = render("{{ v | tojson }}", value.clone()).unwrap();
        assert_eq!(compact, r#"{"b": [1, 2.5, null, true], "a": "<é>", "e": {}}"#);
        let indented = render("{{ v.b | tojson(indent=2) }}", value).unwrap();
        assert_eq!(indented, "[\n  1,\n  2.5,\n  null,\n  true\n]");
    }

    #[test]
    fn python_methods_and_loop_controls_work() {
        let source = "{% for m in v %}{% if m.startswith('b') %}{% break %}{% endif %}{{ m.strip() | upper }}{% endfor %}";
        assert_eq!(render(source, serde_json::json!({"v": [" a ", "b", "c"]})).unwrap(), "A");
    }

    #[test]
    fn an_exception_of_the_template_carries_its_message() {
        let error =
            render("{{ raise_exception('roles must alternate') }}", serde_json::json!({})).unwrap_err();
        assert_eq!(error.detail(), Some("roles must alternate"));
    }

    #[test]
    fn a_template_that_loops_for_ever_is_stopped() {
        let source = "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}";
        assert_eq!(render(source, serde_json::json!({})).unwrap_err().kind(), ErrorKind::OutOfFuel);
    }

    #[test]
    fn a_template_that_calls_itself_for_ever_is_stopped() {
        let source = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
        assert!(render(source, serde_json::json!({})).is_err());
    }

    #[test]
    fn the_date_comes_in_the_asked_format_and_a_bad_format_is_an_error() {
        let date = render("{{ strftime_now('%Y-%m-%d') }}", serde_json::json!({})).unwrap();
        assert_eq!(date.len(), "2026-01-31".len());
        assert!(render("{{ strftime_now('%') }}", serde_json::json!({})).is_err());
    }

    #[test]
    fn generation_blocks_keep_text_and_whitespace_control() {
        let source = without_generation_blocks("a {%- generation %} b {% endgeneration -%} c");
        assert_eq!(render(&source, serde_json::json!({})).unwrap(), "a b c");
    }
}
