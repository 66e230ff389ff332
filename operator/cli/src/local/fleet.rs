//! The state of all engine processes, and the routes that follow from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use regatta_gateway::{Absence, Gateway, Replica, Service, Table, build_table};
use regatta_planner::{ValidatedService, names::Claim};
use tokio::sync::watch;

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
        let now = Timestamp::now();
        let fleet = Self {
            services: services.iter().enumerate().map(|(i, s)| view(now, i, s)).collect(),
            gateway,
            members: Mutex::new(members),
            changed: watch::Sender::new(()),
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

    /// The process takes no requests for now, or is gone and another will follow.
    pub(crate) fn unready(&self, name: &str) {
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

    /// Every process and where it listens; none before its first start.
    pub(crate) fn addresses(&self) -> Vec<(Name, Option<SocketAddr>)> {
        self.members().iter().map(|(name, member)| (name.clone(), member.replica.address)).collect()
    }

    /// What clients find at `address`, in one line.
    pub(crate) fn summary(&self, address: &str) -> String {
        let table = self.table(&self.members());
        let (served, absent): (Vec<_>, Vec<_>) =
            table.iter().partition(|(_, model)| !model.backends.is_empty());
        let served: Vec<&str> = served.into_iter().map(|(name, _)| name).collect();
        let mut text = match served.as_slice() {
            [] => format!("listening: http://{address}/v1 serves nothing"),
            names => format!("ready: http://{address}/v1 serves {}", names.join(", ")),
        };
        for (name, model) in absent {
            let reason = match model.absence {
                Absence::Stopped => "stopped or scaled to zero",
                _ => "its engines do not run",
            };
            text.push_str(&format!("; not {name}: {reason}"));
        }
        for (name, namespace) in self.contested(&table) {
            text.push_str(&format!(
                "; {name} not for namespace {namespace}: an earlier service has the name"
            ));
        }
        text
    }

    /// Names that another namespace owns, with the namespaces that go without.
    fn contested(&self, table: &Table) -> BTreeSet<(String, String)> {
        let claims = self.services.iter().map(|s| &s.claim);
        let names =
            claims.flat_map(|c| c.served_names.iter().map(|name| (name.clone(), c.namespace.clone())));
        names.filter(|(name, ns)| table.get(name).is_some_and(|model| model.namespace != *ns)).collect()
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
        self.gateway.publish(self.table(&members));
    }

    fn table(&self, members: &BTreeMap<Name, Member>) -> Table {
        let replicas: Vec<Replica> = members.values().map(|m| m.replica.clone()).collect();
        build_table(&self.services, &replicas)
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
fn view(start: Timestamp, position: usize, service: &ValidatedService) -> Service {
    Service {
        claim: Claim {
            namespace: service.namespace.clone(),
            service: service.name.clone(),
            created: start + SignedDuration::from_nanos(position as i64),
            served_names: service.served_names.clone(),
        },
        wanted: service.replicas > 0,
    }
}

#[cfg(test)]
mod tests {
    use regatta_gateway::Limits;

    use super::*;
    use crate::local::testing::service;

    fn fleet(services: &[ValidatedService]) -> Fleet {
        Fleet::new(services, Gateway::new(Limits::default()))
    }

    #[test]
    fn only_names_with_an_engine_are_said_to_be_served() {
        let fleet = fleet(&[
            service("default", "a", 1, &[]),
            service("default", "b", 0, &[]),
            service("default", "c", 1, &[]),
        ]);
        fleet.ready("a-0", 1, 0);
        fleet.failed("c-0");
        let expected =
            "ready: http://x/v1 serves a; not b: stopped or scaled to zero; not c: its engines do not run";
        assert_eq!(fleet.summary("x"), expected);
    }

    #[test]
    fn without_any_engine_nothing_is_said_to_be_ready() {
        let text = fleet(&[service("default", "a", 0, &[])]).summary("x");
        assert_eq!(text, "listening: http://x/v1 serves nothing; not a: stopped or scaled to zero");
    }

    #[test]
    fn a_name_of_two_services_is_told_once_and_its_owner_with_it() {
        let named = |namespace: &str, name: &str| ValidatedService {
            served_names: vec!["m".into()],
            ..service(namespace, name, 1, &[])
        };
        let shared = fleet(&[named("default", "a"), named("default", "b")]);
        shared.ready("a-0", 1, 0);
        assert_eq!(shared.summary("x"), "ready: http://x/v1 serves m");
        let contested = fleet(&[named("default", "a"), named("other", "b")]);
        contested.ready("a-0", 1, 0);
        contested.ready("other/b-0", 2, 0);
        let expected =
            "ready: http://x/v1 serves m; m not for namespace other: an earlier service has the name";
        assert_eq!(contested.summary("x"), expected);
    }

    #[test]
    fn services_are_as_old_as_the_run_in_the_order_of_the_file() {
        let before = Timestamp::now();
        let fleet = fleet(&[service("default", "b", 1, &[]), service("default", "a", 1, &[])]);
        let created: Vec<Timestamp> = fleet.services.iter().map(|s| s.claim.created).collect();
        assert!(before <= created[0] && created[0] < created[1]);
    }
}
