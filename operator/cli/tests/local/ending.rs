use crate::harness::{Local, is_alive, service, signal, tiny_model, within};

#[tokio::test]
async fn a_second_signal_ends_it_and_its_engines_at_once() {
    for (first, second) in [("TERM", "TERM"), ("INT", "INT")] {
        let mut local = Local::ready(&service("tiny", &tiny_model(), ", rollout: {drainTimeout: 1h}"));
        let stream = local.begin_long_stream("tiny").await;
        let engines = local.engines();
        assert_eq!(engines.len(), 1);
        local.signal(first);
        local.wait_for("a second Ctrl-C ends them at once");
        local.signal(second);
        assert_eq!(local.end().0.code(), Some(130));
        within("the end of its engines", || engines.iter().all(|&pid| !is_alive(pid)).then_some(()));
        drop(stream);
    }
}

#[tokio::test]
async fn an_answer_that_outlasts_the_drain_timeout_ends_as_a_whole_stream() {
    let local = Local::ready(&service("tiny", &tiny_model(), ", rollout: {drainTimeout: 0s}"));
    let stream = local.begin_long_stream("tiny").await;
    local.signal("INT");
    let text = stream.text().await.expect("a whole stream");
    assert!(text.contains(r#""finish_reason":"abort""#) && text.ends_with("data: [DONE]\n\n"));
    assert_eq!(local.end().0.code(), Some(0));
}

#[tokio::test]
async fn an_answer_within_the_drain_timeout_is_finished() {
    let local = Local::ready(&service("tiny", &tiny_model(), ", rollout: {drainTimeout: 10m}"));
    let request = serde_json::json!({
        "model": "tiny", "prompt": [7], "n": 16, "max_tokens": 1000, "ignore_eos": true, "stream": true,
    });
    let answer = local.client.post(format!("{}/completions", local.url)).json(&request).send().await;
    let mut answer = answer.expect("an answer");
    answer.chunk().await.expect("a stream").expect("a first event");
    local.signal("INT");
    let text = answer.text().await.expect("a whole stream");
    assert!(!text.contains("abort") && text.ends_with("data: [DONE]\n\n"));
    assert_eq!(text.matches(r#""finish_reason":"length""#).count(), 16);
    assert_eq!(local.end().0.code(), Some(0));
}

#[tokio::test]
async fn a_closed_terminal_ends_nothing() {
    let mut local = Local::ready(&service("tiny", &tiny_model(), ""));
    local.close_terminal();
    // Each death makes it write lines that nobody takes.
    for _ in 0..2 {
        let engines = local.engines();
        signal(engines[0], "KILL");
        within("another engine", || local.engines().into_iter().find(|pid| !engines.contains(pid)));
        let request = serde_json::json!({"model": "tiny", "prompt": [7], "max_tokens": 2});
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let answer = local.client.post(format!("{}/completions", local.url)).json(&request).send().await;
            if answer.expect("the gateway lives").status() == 200 {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "the engine that was started anew does not answer");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}
