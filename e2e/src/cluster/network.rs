//! Addresses of the cluster, and the bridge that nodes hang on.
//!
//! The first node shares the control plane's network namespace, so that tests and people there reach pods and Services.
//! Each further node has a network namespace of its own, joined by a veth pair.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result};

use super::component::execute;

/// Address of the API server and etcd, of the bridge and of the first node.
pub(crate) const API_IP: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 1);
pub(crate) const API_PORT: u16 = 6443;
pub(crate) const ETCD_PORT: u16 = 2379;
pub(crate) const ETCD_PEER_PORT: u16 = 2380;
/// The Service `kubernetes`.
pub(crate) const SERVICE_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
pub(crate) const SERVICE_CIDR: &str = "10.96.0.0/16";
/// The Service of CoreDNS.
pub(crate) const DNS_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
pub(crate) const NODE_CIDR: &str = "10.100.0.0/24";
pub(crate) const POD_CIDR: &str = "10.244.0.0/16";
/// Bridge of the nodes.
pub(crate) const BRIDGE: &str = "regatta0";
/// Bridge of one node's pods, made by the CNI plugin.
pub(crate) const POD_BRIDGE: &str = "regatta-pods";
/// nftables table of ours.
pub(crate) const TABLE: &str = "regatta";
pub(crate) const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

pub(crate) fn api_url() -> String {
    format!("https://{API_IP}:{API_PORT}")
}

/// Address of node 1, 2, ...
pub(crate) fn node_ip(node: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 100, 0, node)
}

/// Pods of node 1, 2, ...
pub(crate) fn pod_cidr(node: u8) -> String {
    format!("10.244.{node}.0/24")
}

fn namespace(node: u8) -> String {
    format!("node-{node}")
}

/// The words to put before a command so that it runs on `node`'s network.
///
/// Not `ip netns exec`: that mounts a fresh /sys, and the kubelet would miss its cgroups.
pub(crate) fn enter(node: u8) -> Vec<String> {
    match node {
        1 => Vec::new(),
        _ => vec!["nsenter".into(), format!("--net=/run/netns/{}", namespace(node))],
    }
}

/// Makes the bridge, with the address that the control plane listens on.
pub(crate) fn create_bridge() -> Result<()> {
    ip("link set lo up")?;
    ip(&format!("link add {BRIDGE} type bridge")).with_context(|| {
        format!(
            "if another cluster owns the bridge, stop it with make cluster-down in its repository; \
             a bridge that nobody owns goes with: ip link del {BRIDGE}"
        )
    })?;
    ip(&format!("addr add {API_IP}/24 dev {BRIDGE}"))?;
    ip(&format!("link set {BRIDGE} up"))
}

/// A fresh network namespace has no route at all, and a packet to a Service needs one before it is redirected.
pub(crate) fn create_default_route() -> Result<()> {
    ip(&format!("route add default dev {BRIDGE}"))
}

/// Lets packets pass between pods and nodes.
pub(crate) fn forward() -> Result<()> {
    fs::write(IP_FORWARD, "1").with_context(|| format!("cannot write {IP_FORWARD}"))
}

/// Lets pods reach the world outside through the host.
pub(crate) fn masquerade() -> Result<()> {
    let rules = format!(
        "add table ip {TABLE}; \
         add chain ip {TABLE} postrouting {{ type nat hook postrouting priority srcnat; }}; \
         add rule ip {TABLE} postrouting ip saddr {POD_CIDR} ip daddr != {{ {POD_CIDR}, {NODE_CIDR} }} masquerade"
    );
    execute("nft", &[&rules]).map(drop)
}

/// Gives a further node its network namespace, and routes between its pods and those of all nodes before it.
pub(crate) fn create_node(node: u8) -> Result<()> {
    let name = namespace(node);
    ip(&format!("netns add {name}"))?;
    ip(&format!("link add veth-{name} type veth peer name eth0 netns {name}"))?;
    ip(&format!("link set veth-{name} master {BRIDGE} up"))?;
    ip_on(node, "link set lo up")?;
    ip_on(node, &format!("addr add {}/24 dev eth0", node_ip(node)))?;
    ip_on(node, "link set eth0 up")?;
    ip_on(node, &format!("route add default via {API_IP}"))?;
    for other in 1..node {
        ip_on(node, &format!("route add {} via {}", pod_cidr(other), node_ip(other)))?;
        ip_on(other, &format!("route add {} via {}", pod_cidr(node), node_ip(node)))?;
    }
    on(node, &["sh", "-c", &format!("echo 1 > {IP_FORWARD}")])
}

fn ip(arguments: &str) -> Result<()> {
    ip_on(1, arguments)
}

fn ip_on(node: u8, arguments: &str) -> Result<()> {
    let words: Vec<&str> = std::iter::once("ip").chain(arguments.split(' ')).collect();
    on(node, &words)
}

fn on(node: u8, words: &[&str]) -> Result<()> {
    let entered = enter(node);
    let all: Vec<&str> = entered.iter().map(String::as_str).chain(words.iter().copied()).collect();
    execute(all[0], &all[1..]).map(drop)
}

/// Checks that no other program holds a fixed port of the control plane or the first node, as another Kubernetes on the
/// host's network would.
pub(crate) fn check_ports() -> Result<()> {
    let shared = [API_PORT, ETCD_PORT, ETCD_PEER_PORT, 10250].map(|port| (API_IP, port));
    let local = [10248, 10249, 10256, 10257, 10259].map(|port| (Ipv4Addr::LOCALHOST, port));
    for (address, port) in shared.into_iter().chain(local) {
        TcpListener::bind((address, port)).with_context(|| {
            format!("port {port} is in use by another program: find it with ss -ltnp and stop it first")
        })?;
    }
    Ok(())
}
