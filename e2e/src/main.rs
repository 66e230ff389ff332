//! `regatta-cluster`: a real Kubernetes on this machine, for tests and for people.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use regatta_e2e::{Recipe, Size, Workspace};

/// A real Kubernetes on this machine: etcd, API server, controllers, and nodes that run pods.
///
/// The programs are built from their published Go modules the first time (about 5 minutes on 2 cores) and kept in
/// .cluster/bin, with kubectl among them. No container engine is needed: images come as tar files.
#[derive(Parser)]
#[command(version, max_term_width = 110)]
struct Arguments {
    /// The folder for the state of clusters [default: .cluster in the repository]
    #[arg(long, global = true, value_name = "DIR")]
    state: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Bring one node up on this host's own network, and leave it running
    ///
    /// Pods and Services are reachable from this host's shell. The kubeconfig is .cluster/kubeconfig. A second call
    /// says that the cluster is up. For more than one node use run.
    Up {
        /// Install missing Debian packages first
        #[arg(long)]
        install: bool,
    },
    /// End the cluster of `up` and remove everything of it: processes, mounts, interfaces, rules, cgroups, files
    Down,
    /// Show what is up, and its nodes and pods
    Status,
    /// Run a command inside a fresh cluster that ends with it, however it ends
    ///
    /// The cluster has a network of its own, without a way out: build and download before. The command sees
    /// KUBECONFIG and REGATTA_TEST_KUBECONFIG, and kubectl on its PATH; its exit code is passed on. Any number of runs
    /// can go on at once.
    #[command(
        after_help = "Example:\n  regatta-cluster run --size api -- cargo test -p regatta-crds --test cluster"
    )]
    Run {
        /// How much of Kubernetes
        #[arg(long, value_enum, default_value = "node")]
        size: Size,
        /// Number of nodes, for --size node
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
        nodes: u8,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Load image archives into every node: of the cluster around this command, else of the one that is up
    Load {
        /// OCI image layouts as tar files
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Make image archives from built programs and the shared libraries they need
    #[command(subcommand)]
    Image(Image),
    /// Build the Kubernetes programs, and nothing else
    Build,
    /// Check for the Debian packages that nodes need
    Packages {
        /// Install what is missing
        #[arg(long)]
        install: bool,
    },
    /// The first process of a cluster (for regatta-cluster itself)
    #[command(hide = true)]
    Init {
        dir: PathBuf,
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// The harness inside a cluster (for regatta-cluster itself)
    #[command(hide = true)]
    Inside {
        dir: PathBuf,
        #[arg(last = true)]
        command: Vec<String>,
    },
}

#[derive(Subcommand)]
enum Image {
    /// The images of this project: .images/regatta.tar and .images/regatta-engine.tar
    All {
        /// The folder of the programs regatta and regatta-engine [default: where regatta-cluster lies]
        #[arg(long, value_name = "DIR")]
        programs: Option<PathBuf>,
    },
    /// The image of one program
    #[command(after_help = "Example:\n  regatta-cluster image one target/release/regatta \
                            --name docker.io/regatta/regatta:dev --output .images/regatta.tar")]
    One {
        /// The program; the image's entrypoint
        binary: PathBuf,
        /// The image's full name
        #[arg(long)]
        name: String,
        /// The archive to write
        #[arg(long)]
        output: PathBuf,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Only this file decides the provider of the process; an error would mean that it was decided before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match execute(arguments) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        Err(error) => {
            eprintln!("regatta-cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(arguments: Arguments) -> Result<i32> {
    let state = || match arguments.state {
        Some(dir) => std::path::absolute(dir).context("cannot find the folder for the state"),
        None => Ok(Workspace::find()?.default_state()),
    };
    match arguments.command {
        Command::Up { install } => {
            if install {
                regatta_e2e::install_packages()?;
            }
            regatta_e2e::up(&state()?)?;
        }
        Command::Down => regatta_e2e::down(&state()?)?,
        Command::Status => regatta_e2e::status(&state()?)?,
        Command::Load { archives } => regatta_e2e::load(&state()?, &archives)?,
        Command::Image(Image::All { programs }) => write_all_images(programs)?,
        Command::Image(Image::One { binary, name, output }) => write_image(&Recipe { name, binary, output })?,
        Command::Build => regatta_e2e::build(&Workspace::find()?)?,
        Command::Packages { install: true } => regatta_e2e::install_packages()?,
        Command::Packages { install: false } => regatta_e2e::check_packages()?,
        Command::Run { size, nodes, command } => {
            return single_threaded()?.block_on(regatta_e2e::run(&state()?, size, nodes, &command));
        }
        Command::Init { dir, command } => {
            return single_threaded()?.block_on(regatta_e2e::init(&dir, &command));
        }
        Command::Inside { dir, command } => {
            let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
            return runtime.block_on(regatta_e2e::inside(&dir, &command));
        }
    }
    Ok(0)
}

/// A process that makes namespaces for its children can start no thread afterwards.
fn single_threaded() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start a runtime")
}

fn write_all_images(programs: Option<PathBuf>) -> Result<()> {
    let programs = match programs {
        Some(dir) => dir,
        None => std::env::current_exe()
            .context("cannot find this program's own file")?
            .parent()
            .context("this program's file is in no folder")?
            .to_owned(),
    };
    for recipe in Recipe::of_project(&Workspace::find()?, &programs) {
        write_image(&recipe)?;
    }
    Ok(())
}

fn write_image(recipe: &Recipe) -> Result<()> {
    let bytes = recipe.write()?;
    println!("{}: {} ({:.1} MB)", recipe.output.display(), recipe.name, bytes as f64 / 1e6);
    Ok(())
}
