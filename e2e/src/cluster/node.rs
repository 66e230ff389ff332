//! One node: containerd, kubelet and kube-proxy, on the node's own network and with folders of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use super::component::Component;
use super::network::{self, DNS_IP, NODE_CIDR, POD_BRIDGE, POD_CIDR, node_ip, pod_cidr};
use super::pki::Pki;
use super::spec::Spec;
use super::{HOME, Home, cgroup, kubeconfig};
use crate::image;
use crate::progress::Progress;

/// Where Debian's containernetworking-plugins lie.
const CNI_PLUGINS: &str = "/usr/lib/cni";
const CONTAINERD_DEADLINE: Duration = Duration::from_secs(30);

/// Name of node 1, 2, ...
pub(crate) fn name(number: u8) -> String {
    format!("node-{number}")
}

/// The socket of a node's containerd, as seen from inside the namespaces.
pub(crate) fn socket(number: u8) -> PathBuf {
    Path::new(HOME).join(name(number)).join("containerd.sock")
}

/// Starts the three programs, and loads the images before the kubelet looks for them.
pub(crate) async fn start(
    spec: &Spec,
    home: &Home,
    pki: &Pki,
    number: u8,
    progress: Progress,
) -> Result<Vec<Component>> {
    let name = name(number);
    let dir = home.path(&name);
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    progress.say(format!("starting {name}: containerd"));
    let mut containerd = containerd(home, number, &dir)?;
    let socket = socket(number);
    progress
        .wait("containerd", CONTAINERD_DEADLINE, async || {
            containerd.check()?;
            Ok(image::containerd_answers(&socket))
        })
        .await?;
    for tar in &spec.images {
        progress.say(format!("{name}: loading {}", tar.display()));
        image::load(&socket, tar)?;
    }
    progress.say(format!("starting {name}: kubelet and kube-proxy"));
    let kubelet = kubelet(spec, home, pki, number, &dir)?;
    let proxy = proxy(home, pki, number)?;
    Ok(vec![containerd, kubelet, proxy])
}

/// Whether the node can take pods, or why not.
pub(crate) fn readiness(node: &Node) -> Result<(), String> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    match conditions.iter().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "True" => Ok(()),
        Some(ready) => Err(ready.message.clone().unwrap_or_else(|| "not Ready".into())),
        None => Err("the kubelet has not reported yet".into()),
    }
}

fn containerd(home: &Home, number: u8, dir: &Path) -> Result<Component> {
    write(
        &dir.join("cni/regatta.conflist"),
        &json!({
            "cniVersion": "1.0.0",
            "name": "regatta",
            "plugins": [{
                "type": "bridge",
                "bridge": POD_BRIDGE,
                "isGateway": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": dir.join("ipam"),
                    "ranges": [[{"subnet": pod_cidr(number)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }],
        })
        .to_string(),
    )?;
    let config = dir.join("containerd.toml");
    write(&config, &containerd_config(dir, &socket(number)))?;
    let mut command = on_node(number, Path::new("containerd"));
    command.arg("--config").arg(&config);
    Component::start(&format!("{}-containerd", name(number)), &home.logs(), command)
}

/// `restrict_oom_score_adj`: a root without CAP_SYS_RESOURCE may not lower the score, and runc would fail.
fn containerd_config(dir: &Path, socket: &Path) -> String {
    let (dir, socket) = (dir.display(), socket.display());
    let pause = image::PAUSE;
    format!(
        r#"version = 2
root = "{dir}/containerd"
state = "{dir}/containerd-state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{dir}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  Root = "{dir}/runc"
"#
    )
}

fn kubelet(spec: &Spec, home: &Home, pki: &Pki, number: u8, dir: &Path) -> Result<Component> {
    let name = name(number);
    pki.create_kubelet(number)?;
    let kubeconfig = dir.join("kubelet.kubeconfig");
    let identity = pki.cluster.client(&format!("system:node:{name}"), Some("system:nodes"))?;
    kubeconfig::write(&kubeconfig, pki, &identity)?;
    let cgroup = cgroup::name(&spec.id, number);
    cgroup::create(&cgroup)?;
    let config = dir.join("kubelet.yaml");
    write(&config, &kubelet_config(pki, number, dir, &cgroup).to_string())?;
    let mut command = on_node(number, &home.kubernetes);
    command.arg("kubelet").args([
        format!("--config={}", config.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--root-dir={}/kubelet", dir.display()),
        format!("--cert-dir={}/kubelet-pki", dir.display()),
        format!("--hostname-override={name}"),
        format!("--node-ip={}", node_ip(number)),
    ]);
    Component::start(&format!("{name}-kubelet"), &home.logs(), command)
}

/// The kubelet's configuration (JSON is YAML, too). Nothing here may be sized by the host's disk: a full disk would
/// evict the pods under test.
fn kubelet_config(pki: &Pki, number: u8, dir: &Path, cgroup: &str) -> serde_json::Value {
    let nothing = "0%";
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node_ip(number),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": pki.path("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": pki.path(&format!("kubelet-{number}.crt")),
        "tlsPrivateKeyFile": pki.path(&format!("kubelet-{number}.key")),
        "containerRuntimeEndpoint": format!("unix://{}", socket(number).display()),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failCgroupV1": false,
        "failSwapOn": false,
        "oomScoreAdj": 0,
        "clusterDNS": [DNS_IP],
        "clusterDomain": "cluster.local",
        "resolvConf": Path::new(HOME).join("resolv.conf"),
        // Among the logs of the components, so that those of a failed run are kept.
        "podLogsDir": Path::new(HOME).join("logs").join(format!("{}-pods", name(number))),
        "volumePluginDir": dir.join("volume-plugins"),
        "makeIPTablesUtilChains": false,
        "localStorageCapacityIsolation": false,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": nothing,
            "nodefs.available": nothing,
            "nodefs.inodesFree": nothing,
            "imagefs.available": nothing,
            "imagefs.inodesFree": nothing,
        },
    })
}

/// All Service traffic is masqueraded: without it an answer between two pods of one bridge would go past the rules
/// that have to translate it back, on hosts where bridged packets do not see nftables.
fn proxy(home: &Home, pki: &Pki, number: u8) -> Result<Component> {
    let name = name(number);
    let kubeconfig = home.path(&name).join("kube-proxy.kubeconfig");
    kubeconfig::write(&kubeconfig, pki, &pki.cluster.client("system:kube-proxy", None)?)?;
    let mut command = on_node(number, &home.kubernetes);
    command.arg("kube-proxy").args([
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--hostname-override={name}"),
        "--proxy-mode=nftables".into(),
        "--masquerade-all".into(),
        format!("--cluster-cidr={POD_CIDR}"),
        format!("--nodeport-addresses={NODE_CIDR}"),
        "--metrics-bind-address=127.0.0.1:10249".into(),
        "--healthz-bind-address=127.0.0.1:10256".into(),
        "--oom-score-adj=0".into(),
        "--conntrack-max-per-core=0".into(),
        "--conntrack-tcp-timeout-established=0".into(),
        "--conntrack-tcp-timeout-close-wait=0".into(),
    ]);
    Component::start(&format!("{name}-kube-proxy"), &home.logs(), command)
}

fn on_node(number: u8, program: &Path) -> Command {
    let mut words = network::enter(number);
    if words.is_empty() {
        return Command::new(program);
    }
    let mut command = Command::new(words.remove(0));
    command.args(words).arg(program);
    command
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
