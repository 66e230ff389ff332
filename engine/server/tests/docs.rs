//! The reference of the flags says what the command line says.

use std::path::{Path, PathBuf};

use regatta_core::simulate::Percentiles;
use regatta_engine::args::{self, Command, Flag};
use regatta_engine::simulate;

fn row(flag: &Flag) -> String {
    let value = flag.value.as_ref().map_or_else(String::new, |value| format!(" {value}"));
    let several = if flag.multiple { "..." } else { "" };
    let default = flag.default.as_ref().map_or_else(String::new, |default| format!("`{default}`"));
    let env = flag.env.as_ref().map_or_else(String::new, |env| format!("; environment: `{env}`"));
    let values: Vec<String> = flag.values.iter().map(|value| format!("`{value}`")).collect();
    let values = if values.is_empty() { String::new() } else { format!("; one of {}", values.join(", ")) };
    format!("| `{}{value}{several}` | {default} | {}{values}{env} |", flag.name, flag.help)
}

#[test]
fn the_flags_page_lists_every_flag_and_no_other() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/engine-flags.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let written: Vec<&str> = page.lines().filter(|line| line.starts_with("| `--")).collect();
    let wanted: Vec<String> = args::serve_flags().iter().map(row).collect();
    assert_eq!(written, wanted, "write these rows:\n{}\n", wanted.join("\n"));
}

/// Flags of the rows of the table of simulations.
const SIMULATIONS: &[&str] = &[
    "",
    "--max-num-seqs 4",
    "--max-num-batched-tokens 64",
    "--max-num-batched-tokens 64 --long-prefill-token-threshold 32",
    "--num-gpu-blocks-override 64",
    "--shared-prefix-len 64",
    "--shared-prefix-len 64 --no-enable-prefix-caching",
];

fn simulated(flags: &str) -> String {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/azure-llm-2023-conv-200.csv");
    let cost = "step=15000,prefill-token=900,prefill-context=4,decode-sequence=1000,decode-context=4";
    let fixed = ["--token-scale", "0.1", "--cost", cost];
    let argv = ["regatta-engine", "simulate", trace.to_str().unwrap()];
    let settings = match args::parse(argv.into_iter().chain(fixed).chain(flags.split_whitespace())) {
        Ok(Command::Simulate(settings)) => settings,
        other => panic!("{other:?}"),
    };
    let outcome = simulate::outcome(&settings).unwrap();
    let times = |values: &[f64]| {
        let Percentiles { p50, p99, .. } = Percentiles::of(values).expect("requests ended");
        format!("{:.1} | {:.1}", p50 * 1e3, p99 * 1e3)
    };
    let stats = outcome.stats;
    let cached = 100.0 * stats.prefix_cache_hits as f64 / stats.prefix_cache_queries.max(1) as f64;
    let name = if flags.is_empty() { "none".to_owned() } else { format!("`{flags}`") };
    let (ttft, itl) = (times(&outcome.ttft), times(&outcome.itl));
    let preemptions = stats.recompute_preemptions + stats.swap_preemptions;
    format!("| {name} | {ttft} | {itl} | {preemptions} | {cached:.0} % |")
}

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src").join(name)
}

#[test]
fn the_table_of_simulations_is_what_the_program_computes() {
    let page = page("concepts/simulate-and-replay.md");
    let text = std::fs::read_to_string(&page).expect("the page is there");
    let (before, table) = text.split_at(text.find("| flags |").expect("the page has the table"));
    let head: Vec<&str> = table.lines().take(2).collect();
    let rows: Vec<String> = SIMULATIONS.iter().map(|flags| simulated(flags)).collect();
    let len = table.lines().take_while(|line| line.starts_with('|')).map(|line| line.len() + 1).sum();
    let wanted = format!("{}\n{}\n", head.join("\n"), rows.join("\n"));
    if std::env::var_os("REGATTA_WRITE_DOCS").is_some() {
        std::fs::write(&page, format!("{before}{wanted}{}", &table[len..])).unwrap();
        return;
    }
    assert_eq!(&table[..len], wanted, "REGATTA_WRITE_DOCS=1 with this test writes it");
}

/// Names of all fields, with those inside others after a dot.
fn paths(value: &serde_json::Value, prefix: &str) -> Vec<String> {
    let Some(object) = value.as_object() else { return vec![prefix.to_owned()] };
    let join = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
    object.iter().flat_map(|(name, value)| paths(value, &join(name))).collect()
}

#[test]
fn the_page_lists_every_field_of_a_simulation_for_programs() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/azure-llm-2023-conv-200.csv");
    let argv =
        ["regatta-engine", "simulate", trace.to_str().unwrap(), "--cost", "step=9000", "--requests", "20"];
    let settings = match args::parse(argv) {
        Ok(Command::Simulate(settings)) => settings,
        other => panic!("{other:?}"),
    };
    let outcome = simulate::outcome(&settings).unwrap();
    let report = simulate::Report::new(Default::default(), &outcome, Some(&outcome));
    let written = paths(&serde_json::to_value(&report).unwrap(), "");
    let text = std::fs::read_to_string(page("concepts/simulate-and-replay.md")).expect("the page is there");
    let (_, table) = text.split_once("| field |").expect("the page has the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let listed: Vec<&str> = rows
        .flat_map(|row| row.split('|').nth(1))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    let percentiles = ["p50", "p90", "p99", "max"];
    for path in &written {
        let short = path
            .rsplit_once('.')
            .filter(|(_, last)| percentiles.contains(last))
            .map_or(&path[..], |(start, _)| start);
        let short = short.strip_prefix("cost.").map_or(short, |_| "cost");
        assert!(listed.contains(&short), "`{path}` is not in the table");
    }
    for field in listed {
        assert!(
            written.iter().any(|path| path == field || path.starts_with(&format!("{field}."))),
            "`{field}` is no field"
        );
    }
}
