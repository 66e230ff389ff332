use crate::harness::{Local, service, tiny_model};

#[test]
fn a_flag_that_the_engine_refuses_ends_it_at_once_with_the_engines_words() {
    let args = ", engine: {args: [{name: block-size, values: ['3']}]}";
    let (status, text) = Local::start(&service("tiny", &tiny_model(), args)).end();
    assert_eq!(status.code(), Some(1));
    let last = text.lines().last().expect("a line");
    assert!(last.starts_with("error: no engine could be started: tiny-0: "), "{last}");
    assert!(last.contains("--block-size 3: must be a power of two"), "{last}");
    assert!(!text.contains("starting again"), "{text}");
}

#[test]
fn a_model_that_is_none_ends_it_at_once_with_the_engines_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let (status, text) = Local::start(&service("tiny", folder.path(), "")).end();
    assert_eq!(status.code(), Some(1));
    assert!(text.lines().last().is_some_and(|line| line.contains("config.json")), "{text}");
    assert!(!text.contains("starting again"), "{text}");
}

#[test]
fn a_service_without_replicas_is_not_said_to_be_served() {
    let mut local = Local::start(&service("tiny", &tiny_model(), ", replicas: 0"));
    let line = local.wait_for("listening: ");
    assert!(line.contains("serves nothing; not tiny: stopped or scaled to zero"), "{line}");
    local.signal("TERM");
    assert_eq!(local.end().0.code(), Some(0));
}

#[tokio::test]
async fn replicas_share_the_memory_for_kv_blocks() {
    let mut local = Local::start(&service("tiny", &tiny_model(), ", replicas: 2"));
    local.wait_for("ready: ");
    for pid in local.engines() {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("it lives");
        assert!(line.contains("--gpu-memory-utilization\x000.25"), "{line}");
    }
}
