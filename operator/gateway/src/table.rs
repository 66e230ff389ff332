//! From services and replicas to routes: pure, so that every state of a cluster can be tested as a value.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use jiff::Timestamp;
use regatta_planner::names::{Claim, Owners};

use crate::Replica;

/// What the gateway knows of one LLMService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The names it asks for.
    pub claim: Claim,
    /// Whether it is to have replicas at all.
    pub wanted: bool,
}

/// Routes for every served name.
#[derive(Debug, Default)]
pub struct Table {
    models: BTreeMap<String, Model>,
}

/// One served name.
#[derive(Debug)]
pub struct Model {
    /// Namespace that owns the name.
    pub namespace: String,
    /// When the oldest service of that name was created.
    pub created: Timestamp,
    /// Engines that take new requests.
    pub backends: Vec<Arc<Backend>>,
    /// Why `backends` is empty, when it is.
    pub absence: Absence,
}

/// Why a served name has no engine to go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Its services are stopped or have zero replicas.
    Stopped,
    /// No replica exists yet.
    Starting,
    /// Replicas exist; none can serve.
    NoneReady {
        /// How many exist.
        replicas: usize,
    },
    /// All replicas are going away.
    Draining,
}

/// One engine that takes requests.
#[derive(Debug)]
pub struct Backend {
    /// As [`Replica::id`].
    pub id: String,
    /// `namespace/pod`, for logs.
    pub name: String,
    /// Where its API listens.
    pub address: SocketAddr,
    /// Requests that this gateway has there now; outlives tables.
    pub in_flight: Arc<AtomicUsize>,
}

/// One request at a backend; gives its place back when dropped.
#[derive(Debug)]
pub struct InFlight(Arc<AtomicUsize>);

impl Backend {
    /// Counts one more request until the value is dropped.
    pub fn enter(&self) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(self.in_flight.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Routes each owned name to the routable replicas of the services that share it.
pub fn build_table(services: &[Service], replicas: &[Replica]) -> Table {
    let owners = Owners::settle(services.iter().map(|s| &s.claim));
    let known: HashMap<(&str, &str), &Service> =
        services.iter().map(|s| ((s.claim.namespace.as_str(), s.claim.service.as_str()), s)).collect();
    let mut of_service = HashMap::<(&str, &str), Vec<&Replica>>::new();
    for replica in replicas {
        of_service.entry((&replica.namespace, &replica.service)).or_default().push(replica);
    }
    let backends: HashMap<&str, Arc<Backend>> = replicas.iter().filter_map(backend).collect();
    let models = owners.iter().map(|(name, namespace, services)| {
        let keys: Vec<_> = services.iter().map(|service| (namespace, service.as_str())).collect();
        let replicas: Vec<&Replica> =
            keys.iter().filter_map(|k| of_service.get(k)).flatten().copied().collect();
        let services: Vec<&Service> = keys.iter().filter_map(|k| known.get(k)).copied().collect();
        let model = Model {
            namespace: namespace.to_owned(),
            created: services.first().map_or(Timestamp::UNIX_EPOCH, |s| s.claim.created),
            backends: replicas.iter().filter_map(|r| backends.get(r.id.as_str())).cloned().collect(),
            absence: absence(&services, &replicas),
        };
        (name.to_owned(), model)
    });
    Table { models: models.collect() }
}

fn backend(replica: &Replica) -> Option<(&str, Arc<Backend>)> {
    let address = replica.address.filter(|_| replica.is_routable())?;
    let backend = Backend {
        id: replica.id.clone(),
        name: format!("{}/{}", replica.namespace, replica.name),
        address,
        in_flight: Arc::default(),
    };
    Some((&replica.id, Arc::new(backend)))
}

fn absence(services: &[&Service], replicas: &[&Replica]) -> Absence {
    if !services.iter().any(|s| s.wanted) {
        return Absence::Stopped;
    }
    match replicas.iter().filter(|r| !r.draining && !r.terminating).count() {
        0 if replicas.is_empty() => Absence::Starting,
        0 => Absence::Draining,
        count => Absence::NoneReady { replicas: count },
    }
}

impl Table {
    /// The route of a served name.
    pub fn get(&self, served_name: &str) -> Option<&Model> {
        self.models.get(served_name)
    }

    /// Every served name in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Model)> {
        self.models.iter().map(|(name, model)| (name.as_str(), model))
    }

    /// Carries the counts of requests in flight over from `previous`, so that a new table forgets none.
    pub(crate) fn adopt(mut self, previous: &Table) -> Self {
        let old: HashMap<&str, &Arc<Backend>> =
            previous.models.values().flat_map(|m| &m.backends).map(|b| (b.id.as_str(), b)).collect();
        for backend in self.models.values_mut().flat_map(|m| &mut m.backends) {
            match old.get(backend.id.as_str()) {
                Some(kept) if kept.address == backend.address => *backend = Arc::clone(kept),
                _ => {}
            }
        }
        self
    }
}

impl Model {
    /// The backend with the fewest requests in flight that is not in `tried`; `turn` breaks ties.
    pub(crate) fn pick(&self, tried: &[String], turn: usize) -> Option<&Arc<Backend>> {
        let count = self.backends.len();
        let rotated = (0..count).map(|i| &self.backends[(turn + i) % count]);
        rotated.filter(|b| !tried.contains(&b.id)).min_by_key(|b| b.in_flight.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests;
