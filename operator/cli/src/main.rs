//! `regatta`: operator, gateway, local, crd.

mod args;
mod cluster;
mod crd;
mod exec;
mod local;
mod log;
mod shutdown;

use std::{io::Write, process::ExitCode};

use clap::Parser;

use args::{Cli, Command};
use log::Reader;

fn main() -> ExitCode {
    rustls::crypto::ring::default_provider().install_default().expect("no provider was installed before");
    let cli = Cli::parse();
    log::install(match cli.command {
        Command::Operator(_) | Command::Gateway(_) => Reader::Collector,
        _ => Reader::Person,
    });
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Whoever would read it may be gone.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match command {
        Command::Operator(args) => runtime()?.block_on(cluster::operator(args)),
        Command::Gateway(args) => runtime()?.block_on(cluster::gateway(args)),
        Command::Local(args) => runtime()?.block_on(local::run(args)),
        Command::Crd(args) => crd::print(&args),
        Command::Exec(args) => exec::run(args),
    }
}
