//! A namespace for each test, so that all of them share one API server.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};

use super::{config, test_client};

/// A fresh namespace; deleted, without waiting for it, when dropped.
pub struct TestNamespace {
    /// A client of the cluster, whose default namespace is not this one.
    pub client: Client,
    /// `test-PURPOSE-RANDOM`.
    pub name: String,
}

impl TestNamespace {
    /// Makes a namespace named after `purpose` (lower-case letters, digits and dashes, at most 40 characters).
    ///
    /// # Errors
    /// When no cluster is around this test, or it refuses the name.
    pub async fn create(purpose: &str) -> Result<Self> {
        let client = test_client().await?;
        let random = &uuid::Uuid::new_v4().simple().to_string()[..8];
        let name = format!("test-{purpose}-{random}");
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.clone());
        Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .with_context(|| format!("cannot create the namespace {name}"))?;
        Ok(Self { client, name })
    }

    /// Objects of one kind in this namespace.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Applies every document of `yaml`, into this namespace where it names none.
    ///
    /// # Errors
    /// As [`crate::apply_yaml`].
    pub async fn apply(&self, yaml: &str) -> Result<Vec<kube::api::DynamicObject>> {
        crate::apply_yaml(&self.client, &self.name, yaml).await
    }
}

impl Drop for TestNamespace {
    /// The test's own runtime may be ending, so the request goes out from a thread that is waited for.
    fn drop(&mut self) {
        let name = self.name.clone();
        let deleted = std::thread::spawn(move || delete(&name)).join();
        if !matches!(deleted, Ok(Ok(()))) {
            eprintln!("the namespace {} was not deleted: {deleted:?}", self.name);
        }
    }
}

fn delete(name: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(async {
        let client = Client::try_from(config().await?).context("cannot make a client")?;
        Api::<Namespace>::all(client).delete(name, &DeleteParams::background()).await.context("refused")?;
        Ok(())
    })
}
