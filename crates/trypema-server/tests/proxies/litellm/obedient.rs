//! A model that generates all tokens that the request allows, in OpenAI's protocols.

use std::net::TcpStream;

use serde_json::{Value, json};

use super::{begin_stream, end_stream, send_event};

/// The tokens of an answer without a limit.
const UNLIMITED: u64 = 5_000;
const PROMPT: u64 = 1;

/// What a request tells the model.
pub struct Told {
    answers: u64,
    tokens_of_each: u64,
}

impl Told {
    pub fn by(request: &Value) -> Self {
        let largest = |names: &[&str]| names.iter().filter_map(|name| request[*name].as_u64()).max();
        let prompts = match request["prompt"].as_array() {
            Some(prompts) if !prompts.iter().all(Value::is_u64) => prompts.len() as u64,
            _ => 1,
        };
        let limit = largest(&["max_tokens", "max_completion_tokens", "max_output_tokens"]);
        Self {
            answers: prompts * largest(&["n", "best_of"]).unwrap_or(1),
            tokens_of_each: limit.unwrap_or(UNLIMITED),
        }
    }

    /// Returns the tokens that the request costs.
    pub fn tokens(&self) -> u64 {
        PROMPT + self.answers * self.tokens_of_each
    }

    pub fn answer(&self, target: &str) -> Value {
        let generated = self.tokens() - PROMPT;
        let usage =
            json!({"prompt_tokens": PROMPT, "completion_tokens": generated, "total_tokens": self.tokens()});
        if target.ends_with("/responses") {
            let content = json!([{"type": "output_text", "text": "hi", "annotations": []}]);
            return json!({
                "id": "1", "object": "response", "created_at": 1, "model": "m", "status": "completed",
                "output": [{"type": "message", "id": "1", "role": "assistant", "status": "completed", "content": content}],
                "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
                "usage": {"input_tokens": PROMPT, "output_tokens": generated, "total_tokens": self.tokens()},
            });
        }
        let (object, content) = if target.ends_with("/chat/completions") {
            ("chat.completion", json!({"message": {"role": "assistant", "content": "hi"}}))
        } else {
            ("text_completion", json!({"text": "hi"}))
        };
        json!({"id": "1", "object": object, "created": 1, "model": "m", "choices": self.choices(&content), "usage": usage})
    }

    /// Streams a text completion. Its answers share their tokens.
    pub fn stream(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        begin_stream(stream)?;
        for choice in self.choices(&json!({"text": "hi"})) {
            let event = json!({"id": "1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]});
            send_event(stream, &event.to_string())?;
        }
        end_stream(stream)
    }

    fn choices(&self, content: &Value) -> Vec<Value> {
        let choice = |index| {
            let mut choice = json!({"index": index, "finish_reason": "stop"});
            choice.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
            choice
        };
        (0..self.answers).map(choice).collect()
    }
}
