//! The state of all engine processes, and the routes that follow from it.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use regatta_gateway::{Gateway, Replica, Service, build_table};
use regatta_planner::{ValidatedService, names::Claim};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Name of one process: service and slot.
pub(crate) type Name = String;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Has not been ready yet.
    Starting,
    /// Was ready once.
    Started,
    /// Will not be started again.
    Failed,
}

struct Member {
    phase: Phase,
    replica: Replica,
}

/// All processes of a manifest.
pub(crate) struct Fleet {
    services: Vec<Service>,
    gateway: Gateway,
    members: Mutex<BTreeMap<Name, Member>>,
    changed: watch::Sender<()>,
    /// Cancelled when engines are to end: after the gateway, whose answers need them.
    pub end: CancellationToken,
}

impl Fleet {
    pub(crate) fn new(services: &[ValidatedService], gateway: Gateway) -> Self {
        let mut members = BTreeMap::new();
        for service in services {
            for slot in 0..service.replicas {
                members.insert(
                    name(service, slot),
                    Member { phase: Phase::Starting, replica: replica(service, slot) },
                );
            }
        }
        let fleet = Self {
            services: services.iter().enumerate().map(|(i, s)| view(i, s)).collect(),
            gateway,
            members: Mutex::new(members),
            changed: watch::Sender::new(()),
            end: CancellationToken::new(),
        };
        fleet.publish();
        fleet
    }

    /// The process listens on `port` and can serve; `start` counts its starts.
    pub(crate) fn ready(&self, name: &str, port: u16, start: u32) {
        self.update(name, |member| {
            member.phase = Phase::Started;
            member.replica.id = format!("{name}#{start}");
            member.replica.address = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            member.replica.ready = true;
        });
    }

    /// The process is gone; another will follow.
    pub(crate) fn lost(&self, name: &str) {
        self.update(name, |member| member.replica.ready = false);
    }

    /// The process will not be started again.
    pub(crate) fn failed(&self, name: &str) {
        self.update(name, |member| {
            member.phase = Phase::Failed;
            member.replica.ready = false;
        });
    }

    /// Resolves once no process is starting for the first time.
    pub(crate) async fn settled(&self) {
        let mut changed = self.changed.subscribe();
        while self.members().values().any(|m| m.phase == Phase::Starting) {
            // The sender lives in self.
            let _ = changed.changed().await;
        }
    }

    /// Whether there are processes and none may come up again.
    pub(crate) fn all_failed(&self) -> bool {
        let members = self.members();
        !members.is_empty() && members.values().all(|m| m.phase == Phase::Failed)
    }

    /// Every served name.
    pub(crate) fn names(&self) -> Vec<String> {
        self.services.iter().flat_map(|s| s.claim.served_names.clone()).collect()
    }

    fn update(&self, name: &str, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.members().get_mut(name) {
            change(member);
        }
        self.publish();
        self.changed.send_replace(());
    }

    /// Routes are made from the state under its lock, so that the newest state is published last.
    fn publish(&self) {
        let members = self.members();
        let replicas: Vec<Replica> = members.values().map(|m| m.replica.clone()).collect();
        self.gateway.publish(build_table(&self.services, &replicas));
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<Name, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Name of the process in `slot` of `service`.
pub(crate) fn name(service: &ValidatedService, slot: u32) -> Name {
    match service.namespace.as_str() {
        "default" => format!("{}-{slot}", service.name),
        namespace => format!("{namespace}/{}-{slot}", service.name),
    }
}

fn replica(service: &ValidatedService, slot: u32) -> Replica {
    Replica {
        id: name(service, slot),
        namespace: service.namespace.clone(),
        service: service.name.clone(),
        name: name(service, slot),
        address: None,
        ready: false,
        draining: false,
        terminating: false,
    }
}

/// The order in the file stands for the age of objects in a cluster.
fn view(position: usize, service: &ValidatedService) -> Service {
    Service {
        claim: Claim {
            namespace: service.namespace.clone(),
            service: service.name.clone(),
            created: Timestamp::from_second(position as i64).unwrap_or(Timestamp::UNIX_EPOCH),
            served_names: service.served_names.clone(),
        },
        wanted: service.replicas > 0,
    }
}
