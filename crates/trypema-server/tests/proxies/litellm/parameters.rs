//! Clients that ask for more than the hook would reserve, of a model that does what LiteLLM tells it.

use serde_json::{Value, json};

use super::{CHAT, LIMIT, Site};

const COMPLETIONS: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const EMBEDDINGS: &str = "/v1/embeddings";
const GENERATE: &str = "/v1beta/models/obedient:generateContent";

/// More requests than fit into the limit.
const ENOUGH_REQUESTS: usize = 7;

/// Parameters that clients add, and the one that the refusal names.
const REFUSED: [(&str, &str, &str); 48] = [
    // They change what LiteLLM sends to the provider.
    (CHAT, r#"{"extra_body": {"max_tokens": 3000, "n": 7}}"#, "extra_body"),
    (CHAT, r#"{"additional_drop_params": ["max_tokens"]}"#, "additional_drop_params"),
    (CHAT, r#"{"drop_params": true}"#, "drop_params"),
    (CHAT, r#"{"allowed_openai_params": ["best_of"], "best_of": 7}"#, "allowed_openai_params"),
    (CHAT, r#"{"best_of": 7}"#, "best_of"),
    (CHAT, r#"{"max_output_tokens": 3000}"#, "max_output_tokens"),
    (CHAT, r#"{"headers": {"a": "b"}}"#, "headers"),
    (CHAT, r#"{"extra_headers": {"a": "b"}}"#, "extra_headers"),
    (CHAT, r#"{"extra_query": {"n": "7"}}"#, "extra_query"),
    (CHAT, r#"{"prompt_id": "long"}"#, "prompt_id"),
    (COMPLETIONS, r#"{"extra_body": {"max_tokens": 3000}}"#, "extra_body"),
    (RESPONSES, r#"{"extra_body": {"max_output_tokens": 3000}}"#, "extra_body"),
    (RESPONSES, r#"{"max_tokens": 3000}"#, "max_tokens"),
    (MESSAGES, r#"{"extra_body": {"max_output_tokens": 3000}}"#, "extra_body"),
    (EMBEDDINGS, r#"{"extra_body": {"input": "long"}}"#, "extra_body"),
    (GENERATE, r#"{"config": {"maxOutputTokens": 3000}}"#, "config"),
    // They repeat calls, or decide what is counted.
    (CHAT, r#"{"num_retries": 100}"#, "num_retries"),
    (CHAT, r#"{"max_retries": null}"#, "max_retries"),
    (CHAT, r#"{"request_timeout": 0.01}"#, "request_timeout"),
    (CHAT, r#"{"fallbacks": ["obedient", "obedient"]}"#, "fallbacks"),
    (CHAT, r#"{"context_window_fallbacks": [{"obedient": ["slow"]}]}"#, "context_window_fallbacks"),
    (CHAT, r#"{"fastest_response": true}"#, "fastest_response"),
    (CHAT, r#"{"caching": true}"#, "caching"),
    (CHAT, r#"{"metadata": {"model_group": "slow"}}"#, "metadata.model_group"),
    (CHAT, r#"{"metadata": "{\"tags\": []}"}"#, "metadata"),
    (CHAT, r#"{"litellm_metadata": {"tags": []}}"#, "litellm_metadata"),
    (MESSAGES, r#"{"litellm_metadata": {"tags": []}}"#, "litellm_metadata"),
    (
        CHAT,
        r#"{"stream": true, "stream_options": {"include_usage": false}}"#,
        "stream_options.include_usage=false",
    ),
    // The prompt is somewhere else, or nobody knows how long it becomes.
    (
        CHAT,
        r#"{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}"#,
        "messages.content.image_url",
    ),
    (
        CHAT,
        r#"{"messages": [[{"role": "user", "content": "hi"}], [{"role": "user", "content": "hi"}]]}"#,
        "messages",
    ),
    (CHAT, r#"{"tools": [{"type": "web_search_20250305"}]}"#, "tools.type=web_search_20250305"),
    (CHAT, r#"{"tools": [{"googleSearch": {}}]}"#, "tools.googleSearch"),
    (CHAT, r#"{"response_format": {"type": "json_schema", "surprise": 1}}"#, "response_format.surprise"),
    (RESPONSES, r#"{"previous_response_id": "resp_1"}"#, "previous_response_id"),
    (RESPONSES, r#"{"input": [{"type": "item_reference", "id": "msg_1"}]}"#, "input.id"),
    (MESSAGES, r#"{"mcp_servers": [{"type": "url", "url": "x", "name": "x"}]}"#, "mcp_servers"),
    // Values that are not what they seem to be.
    (CHAT, r#"{"n": "7"}"#, "n"),
    (CHAT, r#"{"stop": [[["."]]]}"#, "stop"),
    (COMPLETIONS, r#"{"prompt": [[[1, 2]]]}"#, "prompt"),
    (CHAT, r#"{"n": true}"#, "n"),
    (CHAT, r#"{"n": 7.9}"#, "n"),
    (CHAT, r#"{"max_tokens": -1}"#, "max_tokens"),
    (CHAT, r#"{"max_tokens": 0}"#, "max_tokens"),
    (CHAT, r#"{"model": ["obedient", "obedient"]}"#, "model"),
    // What LiteLLM or its providers may learn to obey.
    (CHAT, r#"{"surprise": 1}"#, "surprise"),
    (CHAT, r#"{"stream_options.include_usage": true}"#, "stream_options.include_usage"),
    (CHAT, r#"{"": {"n": 7}}"#, ""),
    (EMBEDDINGS, r#"{"surprise": 1}"#, "surprise"),
];

/// Requests that pass. Nothing limits the output of some, or several parameters do.
const ALLOWED: [(&str, &str); 14] = [
    (CHAT, "{}"),
    (CHAT, r#"{"max_tokens": null}"#),
    (CHAT, r#"{"max_tokens": 5, "max_completion_tokens": 25}"#),
    (CHAT, r#"{"max_tokens": 10, "n": 3}"#),
    (CHAT, r#"{"max_tokens": 30, "model": "obedient,obedient"}"#),
    (CHAT, r#"{"metadata": {"user_id": "me"}, "tools": [], "stop": ["."], "surprise_of_the_operator": 1}"#),
    (COMPLETIONS, "{}"),
    (COMPLETIONS, r#"{"max_tokens": 7, "prompt": ["a", "b", "c"]}"#),
    (COMPLETIONS, r#"{"max_tokens": 7, "prompt": [[1, 2], [3]], "best_of": 3}"#),
    // LiteLLM counts the first answer of a stream.
    (COMPLETIONS, r#"{"max_tokens": 10, "n": 3, "stream": true}"#),
    (RESPONSES, "{}"),
    (RESPONSES, r#"{"max_output_tokens": 30}"#),
    (MESSAGES, "{}"),
    // LiteLLM makes it 16.
    (MESSAGES, r#"{"max_tokens": 1}"#),
];

/// One after the other, because they share what the model counts.
pub fn clients_cannot_choose_their_estimates(site: &Site) {
    unknown_parameters_are_refused(site);
    parameters_do_not_hide_in_headers_and_forms(site);
    a_model_that_obeys_stays_within_the_limit(site);
}

fn unknown_parameters_are_refused(site: &Site) {
    for (route, parameters, name) in REFUSED {
        let spent = site.proxy.model.spent();
        let reply = site.proxy.post(route, "chooser", &request(route, parameters));
        assert_eq!(reply.status, 400, "{route} {parameters}: {reply:?}");
        assert_eq!(reply.json()["error"]["param"], name, "{route} {parameters}: {reply:?}");
        assert_eq!(site.proxy.model.spent(), spent, "{route} {parameters}");
    }
    assert_eq!(site.left("chooser"), LIMIT);
}

fn parameters_do_not_hide_in_headers_and_forms(site: &Site) {
    let spent = site.proxy.model.spent();
    let chat = request(CHAT, "{}").to_string();
    let json = ("content-type", "application/json");
    for name in ["x-litellm-num-retries", "X-LiteLLM-Stream-Timeout", "x-litellm-surprise"] {
        let reply = site.proxy.send(CHAT, "headers", &[json, (name, "3")], &chat);
        assert_eq!(reply.status, 400, "{name}: {reply:?}");
        assert_eq!(reply.json()["error"]["param"], name.to_ascii_lowercase(), "{reply:?}");
    }
    // To LiteLLM, these parameters are of a form.
    let hidden = json!({"model": "completing", "prompt": "&model=completing&prompt=hi&n=7&max_tokens=3000&"});
    let form = ("content-type", "application/x-www-form-urlencoded");
    let reply = site.proxy.send(COMPLETIONS, "headers", &[form], &hidden.to_string());
    assert_eq!(reply.status, 400, "{reply:?}");
    assert_eq!(site.proxy.model.spent(), spent);
}

fn a_model_that_obeys_stays_within_the_limit(site: &Site) {
    for (index, (route, parameters)) in ALLOWED.into_iter().enumerate() {
        let (key, request) = (format!("obedient-{index}"), request(route, parameters));
        let spent = site.proxy.model.spent();
        let mut status = 200;
        for request_index in 0..ENOUGH_REQUESTS {
            let reply = site.proxy.post(route, &key, &request);
            status = reply.status;
            if status == 429 {
                assert!(request_index > 0, "{route} {parameters}: {reply:?}");
                break;
            }
            assert_eq!(status, 200, "{route} {parameters}: {reply:?}");
        }
        assert_eq!(status, 429, "{route} {parameters}");
        let spent = site.proxy.model.spent() - spent;
        assert!((1..=LIMIT).contains(&spent), "{route} {parameters}: {spent} tokens");
    }
}

/// Returns a request for a route with these parameters.
fn request(route: &str, parameters: &str) -> Value {
    let mut request = match route {
        COMPLETIONS => json!({"model": "completing", "prompt": "hi"}),
        RESPONSES | EMBEDDINGS => json!({"model": "obedient", "input": "hi"}),
        GENERATE => json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
        _ => json!({"model": "obedient", "messages": [{"role": "user", "content": "hi"}]}),
    };
    let Value::Object(parameters) = serde_json::from_str(parameters).unwrap() else { panic!("{parameters}") };
    request.as_object_mut().unwrap().extend(parameters);
    request
}
