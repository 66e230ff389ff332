//! Certificates of one cluster, made anew for each.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::network::{API_IP, SERVICE_IP, node_ip};

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// An authority of the cluster that signs identities.
pub(crate) struct Authority {
    pub(crate) certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn create(name: &str) -> Result<Self> {
        let key = KeyPair::generate().context("cannot make a key")?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).with_context(|| format!("cannot sign {name}"))?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// A certificate for a client: Kubernetes reads the user from `user` and the groups from `group`.
    pub(crate) fn client(&self, user: &str, group: Option<&str>) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// A certificate for a server that is reached under `names` (DNS names and IP addresses).
    /// It also serves as a client certificate, which etcd needs to reach itself.
    pub(crate) fn server(&self, user: &str, names: &[String]) -> Result<Identity> {
        let mut params = CertificateParams::new(names).with_context(|| format!("bad names for {user}"))?;
        params.distinguished_name.push(DnType::CommonName, user);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        let key = KeyPair::generate().context("cannot make a key")?;
        let certificate = params.signed_by(&key, &self.issuer).context("cannot sign a certificate")?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// The folder of PEM files that the components read.
pub(crate) struct Pki {
    dir: PathBuf,
    pub(crate) cluster: Authority,
}

impl Pki {
    /// Makes the authorities and the files of the control plane in `dir`.
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let pki = Self { dir: dir.to_owned(), cluster: Authority::create("regatta-test-cluster")? };
        pki.write("ca.crt", &pki.cluster.certificate)?;

        // etcd trusts an authority of its own: a node's or a user's certificate must not open it.
        let etcd = Authority::create("regatta-test-etcd")?;
        pki.write("etcd-ca.crt", &etcd.certificate)?;
        pki.write_identity("etcd", &etcd.server("etcd", &[API_IP.to_string()])?)?;
        pki.write_identity("etcd-client", &etcd.client("kube-apiserver", None)?)?;

        pki.write_identity("apiserver", &pki.cluster.server("kube-apiserver", &apiserver_names())?)?;
        pki.write_identity("kubelet-client", &pki.cluster.client("kube-apiserver", Some("system:masters"))?)?;
        let tokens = KeyPair::generate().context("cannot make the key of service accounts")?;
        pki.write("service-account.key", &tokens.serialize_pem())?;
        pki.write("service-account.pub", &tokens.public_key_pem())?;
        Ok(pki)
    }

    /// Makes the serving certificate of a node's kubelet.
    pub(crate) fn create_kubelet(&self, node: u8) -> Result<()> {
        let name = format!("kubelet-{node}");
        self.write_identity(&name, &self.cluster.server(&name, &[node_ip(node).to_string()])?)
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.dir.join(file).display().to_string()
    }

    fn write_identity(&self, name: &str, identity: &Identity) -> Result<()> {
        self.write(&format!("{name}.crt"), &identity.certificate)?;
        self.write(&format!("{name}.key"), &identity.key)
    }

    fn write(&self, file: &str, pem: &str) -> Result<()> {
        write_private(&self.dir.join(file), pem)
    }
}

/// Writes a file that only its owner reads.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn apiserver_names() -> Vec<String> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST).to_string();
    let dns = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let mut names: Vec<String> = dns.map(String::from).to_vec();
    names.extend([
        "kubernetes.default.svc.cluster.local".to_owned(),
        loopback,
        API_IP.to_string(),
        SERVICE_IP.to_string(),
    ]);
    names
}
