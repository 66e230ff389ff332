use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::{Local, service, tiny_model};

#[tokio::test]
async fn a_chat_is_answered_by_the_demo_model() {
    let model = std::env::var_os("REGATTA_MODEL").expect("REGATTA_MODEL names the demo model: make model");
    let local = Local::ready(&service("smollm2", &PathBuf::from(model), ""));
    let ask = async |stream: bool| {
        let request = json!({"model": "smollm2", "temperature": 0, "max_tokens": 16, "stream": stream,
            "messages": [{"role": "user", "content": "What is a regatta?"}]});
        let answer = local.client.post(format!("{}/chat/completions", local.url)).json(&request).send().await;
        answer.expect("an answer").text().await.expect("a whole answer")
    };
    let text = ask(true).await;
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let events =
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let said: String =
        events.filter_map(|e| e["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect();
    let whole: Value = serde_json::from_str(&ask(false).await).expect("json");
    assert!(said.split_whitespace().count() > 4, "{said}");
    assert_eq!(whole["choices"][0]["message"]["content"], said.as_str());
}

#[tokio::test]
async fn services_that_share_a_name_are_one_model_that_was_created_with_the_run() {
    let before =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let tiny = tiny_model();
    let named = |name| service(name, &tiny, "").replace("'}", "', servedNames: [m]}");
    let local = Local::ready(&[named("a"), named("b")].join("---\n"));
    let models = local.models().await;
    assert_eq!((&models["data"][0]["id"], models["data"].as_array().map(Vec::len)), (&json!("m"), Some(1)));
    assert!(models["data"][0]["created"].as_u64().is_some_and(|created| created >= before), "{models}");
}

#[tokio::test]
async fn metrics_of_the_gateway_and_of_every_engine_are_on_one_page() {
    let local = Local::ready(&service("tiny", &tiny_model(), ", replicas: 2"));
    drop(local.begin_long_stream("tiny").await);
    let page =
        local.client.get(&local.metrics).send().await.expect("an answer").text().await.expect("a page");
    for replica in ["tiny-0", "tiny-1"] {
        let has = |start: &str| page.lines().any(|l| l.starts_with(start) && l.contains(replica));
        assert!(
            has("regatta_local_engine_up{replica=") && has("vllm:num_requests_running{replica="),
            "{page}"
        );
    }
    let declared = page.lines().filter(|line| *line == "# TYPE vllm:num_requests_running gauge").count();
    assert!(declared == 1 && page.contains("\nregatta_gateway_requests_in_flight{model=\"tiny\"}"), "{page}");
    assert!(page.ends_with("# EOF\n"), "{page}");
}
