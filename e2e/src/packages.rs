//! Debian packages that a cluster needs.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cluster::Size;

/// A package, and a file that shows that it is installed.
type Package = (&'static str, &'static str);

const ALWAYS: &[Package] = &[("iproute2", "ip"), ("util-linux", "nsenter")];
const NODES: &[Package] = &[
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("containernetworking-plugins", "/usr/lib/cni/bridge"),
    ("nftables", "nft"),
    ("iptables", "iptables"),
    ("conntrack", "conntrack"),
    ("binutils", "objcopy"),
];
const SYSTEM_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Checks that all packages for `size` are there.
///
/// # Errors
/// When some are missing: the text names them and the command that installs them.
pub(crate) fn check(size: Size) -> Result<()> {
    let missing = missing(size);
    ensure!(
        missing.is_empty(),
        "missing Debian packages: {0}\ninstall them with: apt-get install --no-install-recommends {0}\n\
         or: regatta-cluster packages --install",
        missing.join(" ")
    );
    Ok(())
}

/// Checks that all packages for whole nodes are there.
///
/// # Errors
/// As [`check`].
pub fn check_all() -> Result<()> {
    check(Size::Node)?;
    println!("all packages are installed");
    Ok(())
}

/// Installs what is missing for whole nodes.
///
/// # Errors
/// When apt-get is missing or fails.
pub fn install() -> Result<()> {
    let missing = missing(Size::Node);
    if missing.is_empty() {
        println!("all packages are installed");
        return Ok(());
    }
    eprintln!("installing {}", missing.join(" "));
    apt_get(&["update", "-qq"])?;
    apt_get(&[&["install", "-y", "-qq", "--no-install-recommends"], missing.as_slice()].concat())
}

fn missing(size: Size) -> Vec<&'static str> {
    let nodes = if size == Size::Node { NODES } else { &[] };
    ALWAYS.iter().chain(nodes).filter(|(_, file)| !is_there(file)).map(|(package, _)| *package).collect()
}

fn is_there(file: &str) -> bool {
    // Joining an absolute path gives that path itself.
    std::env::split_paths(&search_path()).any(|dir| dir.join(file).exists())
}

/// The caller's PATH, and the folders of system programs that a plain `su` leaves out.
pub(crate) fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:{SYSTEM_PATH}")
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()
        .context("apt-get cannot be run: nodes need Debian or a relative of it")?;
    if !status.success() {
        bail!("apt-get {} failed ({status})", arguments.join(" "));
    }
    Ok(())
}
