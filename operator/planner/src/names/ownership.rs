//! Which namespace answers for a served model name.
//!
//! Services of one namespace share a name. Across namespaces the oldest claim wins: by creation time, then by
//! namespace and name, so that every reader of the same objects comes to the same answer.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// One LLMService and the names under which it wants to be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Namespace of the LLMService.
    pub namespace: String,
    /// Name of the LLMService.
    pub service: String,
    /// When the LLMService was created.
    pub created: Timestamp,
    /// Names it serves; without duplicates.
    pub served_names: Vec<String>,
}

/// A served name that an older service of another namespace owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The contested name.
    pub served_name: String,
    /// Namespace of the owner.
    pub owner_namespace: String,
    /// Name of the owner, the oldest service that claims the name.
    pub owner_service: String,
}

/// The owner of each served name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    by_name: BTreeMap<String, Owner>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    namespace: String,
    oldest: String,
    services: Vec<String>,
}

impl Owners {
    /// Settles all claims. The order of `claims` does not matter.
    pub fn settle<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> Self {
        let mut claims: Vec<&Claim> = claims.into_iter().collect();
        claims.sort_by_key(|c| (c.created, &c.namespace, &c.service));
        let mut by_name = BTreeMap::<String, Owner>::new();
        for claim in claims {
            for name in &claim.served_names {
                let owner = by_name.entry(name.clone()).or_insert_with(|| Owner {
                    namespace: claim.namespace.clone(),
                    oldest: claim.service.clone(),
                    services: Vec::new(),
                });
                if owner.namespace == claim.namespace && !owner.services.contains(&claim.service) {
                    owner.services.push(claim.service.clone());
                }
            }
        }
        Self { by_name }
    }

    /// Namespace and services that answer for `served_name`, oldest first.
    pub fn of(&self, served_name: &str) -> Option<(&str, &[String])> {
        self.by_name.get(served_name).map(|o| (o.namespace.as_str(), o.services.as_slice()))
    }

    /// All owned names in order, each with its namespace and services.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &[String])> {
        self.by_name.iter().map(|(n, o)| (n.as_str(), o.namespace.as_str(), o.services.as_slice()))
    }

    /// The names that `claim` asks for and another namespace owns.
    pub fn conflicts(&self, claim: &Claim) -> Vec<Conflict> {
        let lost = |name: &String| {
            let owner = self.by_name.get(name).filter(|o| o.namespace != claim.namespace)?;
            Some(Conflict {
                served_name: name.clone(),
                owner_namespace: owner.namespace.clone(),
                owner_service: owner.oldest.clone(),
            })
        };
        claim.served_names.iter().filter_map(lost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(namespace: &str, service: &str, created: i64, names: &[&str]) -> Claim {
        Claim {
            namespace: namespace.into(),
            service: service.into(),
            created: Timestamp::from_second(created).expect("in range"),
            served_names: names.iter().map(|n| (*n).into()).collect(),
        }
    }

    #[test]
    fn services_of_one_namespace_share_a_name() {
        let claims = [claim("a", "new", 2, &["m"]), claim("a", "old", 1, &["m"])];
        let owners = Owners::settle(&claims);
        assert_eq!(owners.of("m"), Some(("a", &["old".to_string(), "new".to_string()][..])));
        assert!(owners.conflicts(&claims[0]).is_empty());
    }

    #[test]
    fn across_namespaces_the_oldest_owns_a_name() {
        let claims = [claim("a", "young", 2, &["m", "only-a"]), claim("b", "old", 1, &["m"])];
        let owners = Owners::settle(&claims);
        assert_eq!(owners.of("m"), Some(("b", &["old".to_string()][..])));
        assert_eq!(owners.of("only-a"), Some(("a", &["young".to_string()][..])));
        let conflict = &owners.conflicts(&claims[0])[0];
        assert_eq!(
            (&*conflict.served_name, &*conflict.owner_namespace, &*conflict.owner_service),
            ("m", "b", "old")
        );
    }

    #[test]
    fn claims_of_the_same_second_are_settled_by_namespace_and_name() {
        let claims = [claim("b", "x", 1, &["m"]), claim("a", "y", 1, &["m"])];
        assert_eq!(Owners::settle(&claims).of("m"), Some(("a", &["y".to_string()][..])));
        let reversed: Vec<_> = claims.iter().rev().cloned().collect();
        assert_eq!(Owners::settle(&claims), Owners::settle(&reversed));
    }

    #[test]
    fn a_name_that_nobody_claims_has_no_owner() {
        assert_eq!(Owners::settle([]).of("m"), None);
    }
}
