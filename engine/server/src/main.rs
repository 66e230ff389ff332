//! `regatta-engine`: serve, inspect, fetch, replay.

use std::{
    io::{IsTerminal, Write},
    path::Path,
    process::ExitCode,
};

use regatta_engine::{args, args::Command, fetch, inspect, replay, serve};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    // There is one provider in the whole program; a second installation would be a defect seen at once.
    rustls::crypto::ring::default_provider().install_default().expect("the first TLS provider");
    let command = match args::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(error) => error.exit(),
    };
    let filter = EnvFilter::try_from_env("REGATTA_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(ansi).with_env_filter(filter).init();
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = match command {
        Command::Serve(settings) => runtime.block_on(serve::serve(*settings)).map_err(Into::into),
        Command::Inspect { model } => print(&model),
        Command::Fetch { uri, to, sha256 } => {
            runtime.block_on(fetch::run(&uri, &to, sha256.as_deref())).map_err(Into::into)
        }
        Command::Replay(settings) => {
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            let replayed = replay::run(&settings, &mut out);
            out.flush()?;
            replayed.map_err(Into::into)
        }
    };
    // Loading cannot be interrupted; a process that ends does not wait for it.
    runtime.shutdown_background();
    result
}

fn print(model: &Path) -> anyhow::Result<()> {
    let facts = inspect::run(model)?;
    Ok(writeln!(std::io::stdout(), "{facts}")?)
}
