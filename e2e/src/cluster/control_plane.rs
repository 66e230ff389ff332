//! etcd, the API server, the controller-manager and the scheduler.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::Home;
use super::component::Component;
use super::kubeconfig;
use super::network::{API_IP, API_PORT, ETCD_PEER_PORT, ETCD_PORT, POD_CIDR, SERVICE_CIDR};
use super::pki::Pki;

/// etcd without fsync: the data live no longer than the cluster.
pub(crate) fn etcd(home: &Home, pki: &Pki) -> Result<Component> {
    let peers = format!("https://{API_IP}:{ETCD_PEER_PORT}");
    let mut command = home.program("etcd");
    command.args([
        format!("--data-dir={}", home.path("etcd").display()),
        "--name=regatta".into(),
        "--unsafe-no-fsync".into(),
        format!("--listen-client-urls={}", etcd_url()),
        format!("--advertise-client-urls={}", etcd_url()),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=regatta={peers}"),
        "--client-cert-auth".into(),
        format!("--trusted-ca-file={}", pki.path("etcd-ca.crt")),
        format!("--cert-file={}", pki.path("etcd.crt")),
        format!("--key-file={}", pki.path("etcd.key")),
        "--peer-client-cert-auth".into(),
        format!("--peer-trusted-ca-file={}", pki.path("etcd-ca.crt")),
        format!("--peer-cert-file={}", pki.path("etcd.crt")),
        format!("--peer-key-file={}", pki.path("etcd.key")),
        "--log-level=warn".into(),
    ]);
    Component::start("etcd", &home.logs(), command)
}

/// The API server. Without a controller-manager nobody makes the service accounts that admission would ask for.
pub(crate) fn apiserver(home: &Home, pki: &Pki, with_controllers: bool) -> Result<Component> {
    let mut command = home.program("kube-apiserver");
    command.args([
        format!("--bind-address={API_IP}"),
        format!("--advertise-address={API_IP}"),
        format!("--secure-port={API_PORT}"),
        format!("--cert-dir={}", home.path("apiserver").display()),
        format!("--etcd-servers={}", etcd_url()),
        format!("--etcd-cafile={}", pki.path("etcd-ca.crt")),
        format!("--etcd-certfile={}", pki.path("etcd-client.crt")),
        format!("--etcd-keyfile={}", pki.path("etcd-client.key")),
        format!("--client-ca-file={}", pki.path("ca.crt")),
        format!("--tls-cert-file={}", pki.path("apiserver.crt")),
        format!("--tls-private-key-file={}", pki.path("apiserver.key")),
        format!("--kubelet-certificate-authority={}", pki.path("ca.crt")),
        format!("--kubelet-client-certificate={}", pki.path("kubelet-client.crt")),
        format!("--kubelet-client-key={}", pki.path("kubelet-client.key")),
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        format!("--service-account-signing-key-file={}", pki.path("service-account.key")),
        format!("--service-account-key-file={}", pki.path("service-account.pub")),
        format!("--service-cluster-ip-range={SERVICE_CIDR}"),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--allow-privileged".into(),
    ]);
    if !with_controllers {
        command.arg("--disable-admission-plugins=ServiceAccount");
    }
    Component::start("kube-apiserver", &home.logs(), command)
}

/// The controller-manager: garbage collection, namespaces, service accounts, endpoints, disruption budgets.
pub(crate) fn controller_manager(home: &Home, pki: &Pki) -> Result<Component> {
    let config = client(home, pki, "kube-controller-manager")?;
    let mut command = home.program("kube-controller-manager");
    command.args([
        format!("--kubeconfig={}", config.display()),
        format!("--cert-dir={}", home.path("controller-manager").display()),
        "--bind-address=127.0.0.1".into(),
        "--leader-elect=false".into(),
        "--use-service-account-credentials".into(),
        format!("--root-ca-file={}", pki.path("ca.crt")),
        format!("--service-account-private-key-file={}", pki.path("service-account.key")),
        "--allocate-node-cidrs=false".into(),
        format!("--cluster-cidr={POD_CIDR}"),
        // A claim applied in one breath with its volume would else wait for the next of many seconds.
        "--pvclaimbinder-sync-period=1s".into(),
    ]);
    Component::start("kube-controller-manager", &home.logs(), command)
}

/// The scheduler.
pub(crate) fn scheduler(home: &Home, pki: &Pki) -> Result<Component> {
    let config = client(home, pki, "kube-scheduler")?;
    let mut command = home.program("kube-scheduler");
    command.args([
        format!("--kubeconfig={}", config.display()),
        format!("--cert-dir={}", home.path("scheduler").display()),
        "--bind-address=127.0.0.1".into(),
        "--leader-elect=false".into(),
    ]);
    Component::start("kube-scheduler", &home.logs(), command)
}

fn client(home: &Home, pki: &Pki, component: &str) -> Result<PathBuf> {
    let path = home.path(&format!("{component}.kubeconfig"));
    kubeconfig::write(&path, pki, &pki.cluster.client(&format!("system:{component}"), None)?)?;
    Ok(path)
}

fn etcd_url() -> String {
    format!("https://{API_IP}:{ETCD_PORT}")
}

impl Home {
    /// A command that runs one of the programs linked into the Kubernetes binary.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(&self.kubernetes);
        command.arg(name);
        command
    }
}
