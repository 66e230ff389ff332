//! `regatta-engine`: serve, inspect, fetch, replay, simulate.

use std::{io, io::Write, path::Path, process::ExitCode};

use regatta_engine::{args, args::Command, fetch, inspect, log, replay, serve, simulate};

fn main() -> ExitCode {
    // There is one provider in the whole program; a second installation would be a defect seen at once.
    rustls::crypto::ring::default_provider().install_default().expect("the first TLS provider");
    let command = match args::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(error) => error.exit(),
    };
    log::install();
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            let refused = error.downcast_ref().is_some_and(serve::ServeError::is_permanent);
            if refused { ExitCode::from(serve::REFUSED_EXIT_CODE) } else { ExitCode::FAILURE }
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let prints = matches!(command, Command::Inspect { .. } | Command::Replay(_) | Command::Simulate(_));
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
            match out.flush() {
                Ok(()) => replayed.map_err(Into::into),
                // What cannot be read is told before that nobody reads.
                Err(error) => replayed.map_err(Into::into).and(Err(error.into())),
            }
        }
        Command::Simulate(settings) => {
            runtime.block_on(simulate::run(&settings, &mut std::io::stdout())).map_err(Into::into)
        }
    };
    // Loading cannot be interrupted; a process that ends does not wait for it.
    runtime.shutdown_background();
    match result {
        // Whoever read the answer, such as `head`, has enough of it.
        Err(error) if prints && is_closed_pipe(&error) => Ok(()),
        result => result,
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.into_iter().any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

fn print(model: &Path) -> anyhow::Result<()> {
    let facts = inspect::run(model)?;
    Ok(writeln!(std::io::stdout(), "{facts}")?)
}
