use proptest::prelude::*;

use super::*;

fn service(namespace: &str, name: &str, created: i64, served: &[&str]) -> Service {
    Service {
        claim: Claim {
            namespace: namespace.into(),
            service: name.into(),
            created: Timestamp::from_second(created).expect("in range"),
            served_names: served.iter().map(|s| (*s).into()).collect(),
        },
        wanted: true,
    }
}

fn replica(namespace: &str, service: &str, id: &str) -> Replica {
    Replica {
        id: id.into(),
        namespace: namespace.into(),
        service: service.into(),
        name: id.into(),
        address: Some(([10, 0, 0, 1], 8000).into()),
        ready: true,
        draining: false,
        terminating: false,
    }
}

fn ids(table: &Table, name: &str) -> Vec<String> {
    table.get(name).map(|m| m.backends.iter().map(|b| b.id.clone()).collect()).unwrap_or_default()
}

#[test]
fn services_of_one_namespace_share_the_requests_of_a_name() {
    let services = [service("a", "old", 1, &["m"]), service("a", "new", 2, &["m", "n"])];
    let table = build_table(&services, &[replica("a", "old", "1"), replica("a", "new", "2")]);
    assert_eq!(ids(&table, "m"), ["1", "2"]);
    assert_eq!(ids(&table, "n"), ["2"]);
}

#[test]
fn the_younger_namespace_gets_no_request_for_a_contested_name() {
    let services = [service("a", "x", 2, &["m"]), service("b", "y", 1, &["m"])];
    let table = build_table(&services, &[replica("a", "x", "1"), replica("b", "y", "2")]);
    assert_eq!(ids(&table, "m"), ["2"]);
}

#[test]
fn a_service_of_the_same_name_in_another_namespace_lends_no_pods() {
    let table = build_table(&[service("a", "x", 1, &["m"])], &[replica("b", "x", "1")]);
    assert_eq!(ids(&table, "m"), [""; 0]);
}

#[test]
fn the_reason_for_an_empty_route_is_told() {
    let named = [service("a", "x", 1, &["m"])];
    let reason = |services: &[Service], replicas: &[Replica]| {
        build_table(services, replicas).get("m").map(|m| m.absence)
    };
    let unready = Replica { ready: false, ..replica("a", "x", "1") };
    let gone = Replica { terminating: true, ..replica("a", "x", "1") };
    assert_eq!(reason(&named, &[]), Some(Absence::Starting));
    assert_eq!(reason(&named, &[unready]), Some(Absence::NoneReady { replicas: 1 }));
    assert_eq!(reason(&named, &[gone]), Some(Absence::Draining));
    let stopped = [Service { wanted: false, ..named[0].clone() }];
    assert_eq!(reason(&stopped, &[]), Some(Absence::Stopped));
}

#[test]
fn a_new_table_keeps_the_counts_of_pods_that_stay() {
    let services = [service("a", "x", 1, &["m"])];
    let before = build_table(&services, &[replica("a", "x", "1")]);
    let held = before.get("m").expect("routed").backends[0].enter();
    let after = build_table(&services, &[replica("a", "x", "1"), replica("a", "x", "2")]).adopt(&before);
    let model = after.get("m").expect("routed");
    assert_eq!(model.pick(&[], 0).map(|b| b.id.as_str()), Some("2"));
    drop(held);
    assert_eq!(model.backends[0].in_flight.load(Ordering::Relaxed), 0);
}

#[test]
fn a_backend_that_was_tried_is_not_picked_again() {
    let table = build_table(&[service("a", "x", 1, &["m"])], &[replica("a", "x", "1")]);
    assert!(table.get("m").expect("routed").pick(&["1".into()], 7).is_none());
}

fn replicas() -> impl Strategy<Value = Vec<Replica>> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let one =
        ("[ab]", "[xyz]", flags).prop_map(|(namespace, service, (ready, draining, terminating, placed))| {
            let address = placed.then(|| ([10, 0, 0, 1], 8000).into());
            Replica { namespace, service, ready, draining, terminating, address, ..replica("", "", "") }
        });
    proptest::collection::vec(one, 0..12).prop_map(|mut all| {
        all.iter_mut().enumerate().for_each(|(i, r)| r.id = i.to_string());
        all
    })
}

fn services() -> impl Strategy<Value = Vec<Service>> {
    let names = proptest::collection::btree_set("[mn]", 1..3);
    proptest::collection::btree_map(("[ab]", "[xyz]"), (0i64..3, names), 0..6).prop_map(|map| {
        let make = |((namespace, name), (created, served)): (
            (String, String),
            (i64, std::collections::BTreeSet<String>),
        )| {
            let served: Vec<&str> = served.iter().map(String::as_str).collect();
            service(&namespace, &name, created, &served)
        };
        map.into_iter().map(make).collect()
    })
}

proptest! {
    #[test]
    fn exactly_the_routable_replicas_of_the_owning_namespace_get_requests(
        services in services(), replicas in replicas(),
    ) {
        let table = build_table(&services, &replicas);
        for (name, model) in table.iter() {
            let serves = |r: &Replica| services.iter().any(|s| {
                s.claim.namespace == r.namespace && s.claim.service == r.service
                    && s.claim.served_names.iter().any(|n| n == name)
            });
            let expected: Vec<&Replica> =
                replicas.iter().filter(|r| r.namespace == model.namespace && serves(r) && r.is_routable()).collect();
            prop_assert_eq!(model.backends.len(), expected.len());
            for backend in &model.backends {
                let found = replicas.iter().find(|r| r.id == backend.id).expect("a backend is a replica");
                prop_assert!(found.ready && !found.draining && !found.terminating);
            }
        }
    }

    #[test]
    fn the_order_of_observation_changes_no_route(services in services(), replicas in replicas()) {
        let sorted = |table: &Table| -> Vec<(String, Vec<String>)> {
            table.iter().map(|(name, _)| { let mut v = ids(table, name); v.sort(); (name.to_owned(), v) }).collect()
        };
        let (mut s, mut r) = (services.clone(), replicas.clone());
        s.reverse();
        r.reverse();
        prop_assert_eq!(sorted(&build_table(&services, &replicas)), sorted(&build_table(&s, &r)));
    }
}
