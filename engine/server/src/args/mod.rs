//! The command line, in two layers: what was typed ([`typed`]), then what it means ([`settings`]). The program sees
//! only the second.

mod scheduling;
pub mod settings;
mod simulation;
mod typed;
mod units;
mod unsupported;

use std::{ffi::OsString, path::PathBuf};

use clap::{CommandFactory, Parser};
use serde::Serialize;

use crate::{replay::ReplaySettings, simulate::SimulateSettings};

pub use scheduling::{MaxModelLen, SchedulerSettings};
pub use settings::ServeSettings;

/// What the program was told to do.
#[derive(Debug)]
pub enum Command {
    /// Serve a model over HTTP.
    Serve(Box<ServeSettings>),
    /// Print a model's facts as JSON.
    Inspect {
        /// A GGUF file or a Hugging Face folder.
        model: PathBuf,
    },
    /// Download a file.
    Fetch {
        /// `http://` or `https://`.
        uri: String,
        /// Where the whole file appears once it is complete and checked.
        to: PathBuf,
        /// Expected SHA-256 in hexadecimal.
        sha256: Option<String>,
    },
    /// Replay a recorded schedule.
    Replay(ReplaySettings),
    /// Simulate a schedule.
    Simulate(Box<SimulateSettings>),
}

/// Reads a command line; the first item is the program's name.
///
/// # Errors
/// Everything clap refuses, a flag of vLLM that this engine does not honour, and values that contradict each other.
/// Asking for help or the version is an error of that kind, too; [`clap::Error::exit`] treats each as it should.
pub fn parse<I>(argv: I) -> Result<Command, clap::Error>
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    let argv: Vec<OsString> = argv.into_iter().map(Into::into).collect();
    let typed = typed::Cli::try_parse_from(&argv).map_err(|error| unsupported::explain(error, &argv))?;
    let refuse = |reason| typed::Cli::command().error(clap::error::ErrorKind::ValueValidation, reason);
    match typed.command {
        typed::Command::Serve(flags) => {
            ServeSettings::try_from(*flags).map(|settings| Command::Serve(Box::new(settings))).map_err(refuse)
        }
        typed::Command::Simulate(flags) => SimulateSettings::try_from(*flags)
            .map(|settings| Command::Simulate(Box::new(settings)))
            .map_err(refuse),
        typed::Command::Inspect { model } => Ok(Command::Inspect { model }),
        typed::Command::Fetch { uri, to, sha256 } => Ok(Command::Fetch { uri, to, sha256 }),
        typed::Command::Replay { file, step, sequence, output } => {
            Ok(Command::Replay(ReplaySettings { file, step, sequence, format: output }))
        }
    }
}

/// One flag of `serve`, for documentation and for whoever renders command lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flag {
    /// With its dashes, as in `--max-model-len`.
    pub name: String,
    /// Placeholder of its value; absent for a switch.
    pub value: Option<String>,
    /// The value when it is absent, if that is a constant.
    pub default: Option<String>,
    /// Environment variable that gives the value when the flag is absent.
    pub env: Option<String>,
    /// Whether it takes several values.
    pub multiple: bool,
    /// The values that it takes, where they can be listed.
    pub values: Vec<String>,
    /// One line of help.
    pub help: String,
}

/// Every flag that `serve` honours, in the order of `--help`.
pub fn serve_flags() -> Vec<Flag> {
    let cli = typed::Cli::command();
    let serve = cli.find_subcommand("serve").expect("`serve` is declared beside this function");
    serve.get_arguments().filter(|arg| arg.get_long().is_some_and(|name| name != "help")).map(flag).collect()
}

fn flag(arg: &clap::Arg) -> Flag {
    let text = |value: &std::ffi::OsStr| value.to_string_lossy().into_owned();
    let takes_value = arg.get_action().takes_values();
    Flag {
        name: format!("--{}", arg.get_long().unwrap_or_default()),
        value: arg
            .get_value_names()
            .and_then(|names| names.first())
            .map(ToString::to_string)
            .filter(|_| takes_value),
        default: arg.get_default_values().first().map(|value| text(value)).filter(|_| takes_value),
        env: arg.get_env().map(text),
        values: match takes_value {
            true => arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect(),
            false => Vec::new(),
        },
        multiple: arg.get_num_args().is_some_and(|range| range.max_values() > 1),
        help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
