//! Starts the programs of a cluster, inside the namespaces that [`crate::instance`] has made for them.

mod cgroup;
pub(crate) mod component;
mod control_plane;
mod dns;
mod kubeconfig;
pub(crate) mod network;
mod node;
mod pki;
mod spec;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

pub(crate) use cgroup::remove as remove_cgroups;
pub(crate) use node::socket as containerd_socket;
pub use spec::Size;
pub(crate) use spec::{Network, Spec};

use crate::progress::Progress;
use component::Component;
use pki::Pki;

/// Where a cluster finds its state from inside its namespaces: short, since a socket's path has 107 bytes at most.
pub(crate) const HOME: &str = "/run/regatta";

const API_DEADLINE: Duration = Duration::from_secs(120);
const CONTROLLERS_DEADLINE: Duration = Duration::from_secs(60);
const NODE_DEADLINE: Duration = Duration::from_secs(120);

/// Folders of one cluster, and the binary that its components come from.
pub(crate) struct Home {
    kubernetes: PathBuf,
}

impl Home {
    fn path(&self, name: &str) -> PathBuf {
        Path::new(HOME).join(name)
    }

    fn logs(&self) -> PathBuf {
        self.path("logs")
    }
}

/// A running cluster.
pub(crate) struct Cluster {
    components: Vec<Component>,
    client: Client,
    progress: Progress,
}

impl Cluster {
    /// Starts everything that `spec` asks for and returns when it is ready for use.
    pub(crate) async fn start(spec: &Spec, progress: Progress) -> Result<Self> {
        let home = Home { kubernetes: spec.bin.join("kubernetes") };
        fs::create_dir_all(home.logs()).context("cannot create the folder of logs")?;
        network::create_bridge()?;
        network::check_ports()?;
        if spec.network == Network::Own {
            network::create_default_route()?;
        }
        let pki = Pki::create(&home.path("pki"))?;
        let kubeconfig = home.path("kubeconfig");
        kubeconfig::write(&kubeconfig, &pki, &pki.cluster.client("regatta-admin", Some("system:masters"))?)?;

        progress.say("starting etcd and kube-apiserver");
        let with_controllers = spec.size >= Size::Controllers;
        let components =
            vec![control_plane::etcd(&home, &pki)?, control_plane::apiserver(&home, &pki, with_controllers)?];
        let mut cluster = Self { components, client: client(&kubeconfig).await?, progress };
        cluster.wait_for_api().await?;
        if with_controllers {
            progress.say("starting kube-controller-manager");
            cluster.components.push(control_plane::controller_manager(&home, &pki)?);
        }
        if spec.size == Size::Node {
            progress.say("starting kube-scheduler");
            cluster.components.push(control_plane::scheduler(&home, &pki)?);
            cluster.start_nodes(spec, &home, &pki).await?;
        }
        if with_controllers {
            cluster.wait_for_service_account().await?;
        }
        if spec.size == Size::Node {
            dns::wait(&mut cluster).await?;
        }
        Ok(cluster)
    }

    async fn start_nodes(&mut self, spec: &Spec, home: &Home, pki: &Pki) -> Result<()> {
        network::forward()?;
        if spec.network == Network::Host {
            network::masquerade()?;
        }
        for number in 1..=spec.nodes {
            if number > 1 {
                network::create_node(number)?;
            }
            let started = node::start(spec, home, pki, number, self.progress).await?;
            self.components.extend(started);
        }
        dns::install(&self.client).await?;
        for number in 1..=spec.nodes {
            self.wait_for_node(&node::name(number)).await?;
        }
        Ok(())
    }

    /// An error when a component has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.components.iter_mut().try_for_each(Component::check)
    }

    /// Waits for `condition`, and no longer than all components live.
    async fn wait(
        &mut self,
        what: &str,
        deadline: Duration,
        condition: impl AsyncFn(Client) -> Result<(), String>,
    ) -> Result<()> {
        let (progress, client) = (self.progress, self.client.clone());
        progress.say(format!("waiting for {what}"));
        progress
            .wait(what, deadline, async || {
                self.check()?;
                Ok(condition(client.clone()).await)
            })
            .await
    }

    async fn wait_for_api(&mut self) -> Result<()> {
        self.wait("the API server", API_DEADLINE, async |client| {
            let request =
                http::Request::get("/readyz").body(Vec::new()).map_err(|error| error.to_string())?;
            client.request_text(request).await.map(drop).map_err(|error| match error {
                // Its text is the list of some forty checks.
                kube::Error::Api(_) => "it answers, but is not ready".to_owned(),
                other => other.to_string(),
            })
        })
        .await
    }

    async fn wait_for_service_account(&mut self) -> Result<()> {
        self.wait("the service account of namespace default", CONTROLLERS_DEADLINE, async |client| {
            let accounts: Api<ServiceAccount> = Api::default_namespaced(client);
            accounts.get("default").await.map(drop).map_err(|error| error.to_string())
        })
        .await
    }

    async fn wait_for_node(&mut self, name: &str) -> Result<()> {
        self.wait(&format!("{name} to be Ready"), NODE_DEADLINE, async |client| {
            let node = Api::<Node>::all(client).get(name).await.map_err(|error| error.to_string())?;
            node::readiness(&node)
        })
        .await
    }
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig =
        Kubeconfig::read_from(kubeconfig).context("the kubeconfig just written is not readable")?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context("the kubeconfig just written is not usable")?;
    Client::try_from(config).context("cannot make a client")
}
