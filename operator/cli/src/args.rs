//! The command line.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand};

/// Runs fleets of LLM servers, on Kubernetes or on this machine.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  regatta local -f docs/examples/smollm2.yaml --pvc models=.models
  regatta crd | kubectl apply --server-side -f -
  REGATTA_LOG=debug regatta gateway

Logs go to standard error; REGATTA_LOG filters them, as in info,regatta_gateway=debug."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Turn LLMServices into engine pods; runs in a cluster, or against the one that kubectl talks to.
    Operator(OperatorArgs),
    /// Route OpenAI requests to the engine pods of a cluster.
    Gateway(GatewayArgs),
    /// Run LLMServices on this machine without Kubernetes.
    Local(LocalArgs),
    /// Print the CustomResourceDefinition of LLMService.
    Crd(CrdArgs),
    /// Run a program that dies with its parent.
    #[command(hide = true)]
    Exec(ExecArgs),
}

#[derive(Args)]
pub(crate) struct OperatorArgs {
    /// Watch this namespace only; absent: all.
    #[arg(long, env = "WATCH_NAMESPACE")]
    pub watch_namespace: Option<String>,
    /// Engine image of services that name none.
    #[arg(long, default_value = "docker.io/regatta/regatta-engine:dev")]
    pub engine_image: String,
    /// Base URL of the gateway, shown in the status of each service; absent: none is shown.
    #[arg(long)]
    pub gateway_url: Option<String>,
    /// Address of /metrics, /livez and /readyz.
    #[arg(long, default_value = "0.0.0.0:9090")]
    pub admin_addr: SocketAddr,
    /// Namespace of the Lease through which one operator leads.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    pub lease_namespace: String,
    /// Name of this process in the Lease; absent: one that is made up.
    #[arg(long, env = "POD_NAME")]
    pub identity: Option<String>,
}

#[derive(Args)]
pub(crate) struct GatewayArgs {
    /// Address for clients.
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// Address of /metrics, /livez and /readyz.
    #[arg(long, default_value = "0.0.0.0:9090")]
    pub admin_addr: SocketAddr,
    /// Watch this namespace only; absent: all.
    #[arg(long, env = "WATCH_NAMESPACE")]
    pub watch_namespace: Option<String>,
    /// Seconds to go on accepting after SIGTERM, while load balancers learn that this gateway ends.
    #[arg(long, default_value_t = 5)]
    pub linger: u64,
    /// Seconds that answers under way may take to end after that.
    #[arg(long, default_value_t = 300)]
    pub drain: u64,
    /// Largest request body, in bytes; Regatta's engine takes no larger ones.
    #[arg(long, default_value_t = 16 << 20)]
    pub max_body: usize,
    /// Seconds until the answer to a request must begin.
    #[arg(long, default_value_t = 600)]
    pub response_timeout: u64,
}

/// Starts the engines that a manifest asks for and a gateway in front of them, restarts what dies, and stops all on
/// Ctrl-C.
#[derive(Args)]
#[command(after_help = "\
Examples:
  regatta local -f service.yaml
  regatta local -f docs/examples/smollm2.yaml --pvc models=.models --port 9000

The manifest is the one for a cluster. `pvc://claim/path` needs a folder that stands for the claim (--pvc);
`file:///path` names a file of this machine; `https://...` is downloaded once, into $REGATTA_CACHE, else
$XDG_CACHE_HOME/regatta, else ~/.cache/regatta. Image, scheduling, resources and podTemplate have no meaning here.")]
pub(crate) struct LocalArgs {
    /// Manifest with one or more LLMServices; other kinds in it are skipped. `-` reads standard input.
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Folder that stands for a PersistentVolumeClaim; may be repeated.
    #[arg(long, value_name = "CLAIM=FOLDER", value_parser = claim)]
    pub pvc: Vec<(String, PathBuf)>,
    /// Port of the gateway on 127.0.0.1; 0: a free one.
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Port on 127.0.0.1 of /metrics of the gateway and all engines; absent: none. 0: a free one.
    #[arg(long)]
    pub metrics_port: Option<u16>,
    /// The program regatta-engine; absent: the one beside this program, else the one on PATH.
    #[arg(long, value_name = "PATH")]
    pub engine: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct CrdArgs {
    /// Print the reference page instead.
    #[arg(long)]
    pub markdown: bool,
}

#[derive(Args)]
pub(crate) struct ExecArgs {
    /// Process id of the parent.
    #[arg(long)]
    pub parent: i32,
    /// Program and arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

fn claim(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((claim, folder)) if !claim.is_empty() && !folder.is_empty() => {
            Ok((claim.to_owned(), folder.into()))
        }
        _ => Err("must be CLAIM=FOLDER, as in models=./models".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_claim_is_mapped_to_a_folder() {
        assert_eq!(claim("models=./a=b"), Ok(("models".into(), "./a=b".into())));
        assert!(claim("models").is_err() && claim("=x").is_err() && claim("x=").is_err());
    }
}
