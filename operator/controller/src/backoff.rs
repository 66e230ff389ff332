//! Pauses between reconciles that fail, for each service on its own.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use kube::runtime::reflector::ObjectRef;
use regatta_crds::LLMService;

const FIRST: Duration = Duration::from_millis(250);
const MAX: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Backoff {
    failures: Mutex<HashMap<ObjectRef<LLMService>, Failures>>,
}

/// Failures of one generation of the spec: a person who corrects it does not wait for what the old one ran up.
#[derive(Clone, Copy, Default)]
struct Failures {
    generation: Option<i64>,
    count: u32,
}

impl Backoff {
    /// The pause after one more failure; at least what the server asked for.
    pub(crate) fn failed(
        &self,
        service: ObjectRef<LLMService>,
        generation: Option<i64>,
        asked: Duration,
    ) -> Duration {
        let mut failures = self.failures.lock().expect("never poisoned");
        let before = failures.entry(service).or_default();
        let count = if before.generation == generation { before.count } else { 0 };
        *before = Failures { generation, count: count.saturating_add(1) };
        let pause = FIRST.saturating_mul(1 << count.min(10)).min(MAX);
        pause.max(asked.min(MAX))
    }

    /// Forgets earlier failures.
    pub(crate) fn succeeded(&self, service: &ObjectRef<LLMService>) {
        self.failures.lock().expect("never poisoned").remove(service);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_start_anew_after_a_success_or_with_a_new_spec() {
        let (backoff, service) = (Backoff::default(), ObjectRef::new("a"));
        let pause = || backoff.failed(service.clone(), Some(1), Duration::ZERO);
        assert_eq!([pause(), pause(), pause()].map(|p| p.as_millis()), [250, 500, 1000]);
        for _ in 0..20 {
            pause();
        }
        assert_eq!(pause(), MAX);
        assert_eq!(backoff.failed(service.clone(), Some(2), Duration::ZERO), FIRST);
        backoff.succeeded(&service);
        assert_eq!(backoff.failed(service, Some(2), Duration::from_secs(3)), Duration::from_secs(3));
    }
}
