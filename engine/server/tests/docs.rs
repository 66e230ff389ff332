//! The reference of the flags says what the command line says.

use std::path::Path;

use regatta_engine::args::{self, Flag};

fn row(flag: &Flag) -> String {
    let value = flag.value.as_ref().map_or_else(String::new, |value| format!(" {value}"));
    let several = if flag.multiple { "..." } else { "" };
    let default = flag.default.as_ref().map_or_else(String::new, |default| format!("`{default}`"));
    let env = flag.env.as_ref().map_or_else(String::new, |env| format!("; environment: `{env}`"));
    format!("| `{}{value}{several}` | {default} | {}{env} |", flag.name, flag.help)
}

#[test]
fn the_flags_page_lists_every_flag_and_no_other() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/engine-flags.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let written: Vec<&str> = page.lines().filter(|line| line.starts_with("| `--")).collect();
    let wanted: Vec<String> = args::serve_flags().iter().map(row).collect();
    assert_eq!(written, wanted, "write these rows:\n{}\n", wanted.join("\n"));
}
