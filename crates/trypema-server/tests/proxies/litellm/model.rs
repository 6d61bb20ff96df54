//! A language model behind LiteLLM, which speaks a little of OpenAI's and of Anthropic's protocol.

#[path = "obedient.rs"]
mod obedient;

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::application::read;

/// The words of a whole stream, one for each chunk.
pub const WORDS: usize = 50;
pub const WORDS_BEFORE_BREAKING: usize = 5;
/// The usage that the last chunk of a stream reports.
pub const USAGE: u64 = 65;
/// The usage of a message in Anthropic's protocol.
pub const MESSAGE_USAGE: u64 = 12;
/// Streams take real time, because the hook renews reservations by its own clock.
const BETWEEN_WORDS: Duration = Duration::from_millis(200);
/// Longer than the timeouts of the test.
const HANGS: Duration = Duration::from_secs(5);

/// A server on a free port. The name of the model says what it does: `slow` streams all words, `breaking`
/// closes the connection after some, `claude` answers as Anthropic does, `hanging` does not answer, `obedient`
/// generates all tokens that it may, everything else fails.
pub struct Model {
    pub address: SocketAddr,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Counters {
    asked: AtomicUsize,
    spent: AtomicU64,
}

impl Model {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let model = Self { address: listener.local_addr().unwrap(), counters: Arc::default() };
        let counters = model.counters.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let counters = counters.clone();
                thread::spawn(move || serve(stream.unwrap(), &counters));
            }
        });
        model
    }

    /// Returns the number of requests that have reached the model.
    pub fn asked(&self) -> usize {
        self.counters.asked.load(Ordering::SeqCst)
    }

    /// Returns the tokens that `obedient` has generated.
    pub fn spent(&self) -> u64 {
        self.counters.spent.load(Ordering::SeqCst)
    }
}

/// Answers one request.
fn serve(stream: TcpStream, counters: &Counters) {
    let mut stream = BufReader::new(stream);
    let Some(request) = read(&mut stream) else { return };
    counters.asked.fetch_add(1, Ordering::SeqCst);
    let target = request["target"].as_str().unwrap().to_owned();
    let request: Value = serde_json::from_str(request["body"].as_str().unwrap()).unwrap();
    let stream = stream.get_mut();
    // LiteLLM closes the connection when its client has left.
    let _ = match request["model"].as_str().unwrap() {
        "slow" => send(stream, WORDS),
        "breaking" => send(stream, WORDS_BEFORE_BREAKING),
        "obedient" => {
            let told = obedient::Told::by(&request);
            counters.spent.fetch_add(told.tokens(), Ordering::SeqCst);
            if request["stream"] == true {
                told.stream(stream)
            } else {
                answer(stream, 200, &told.answer(&target))
            }
        }
        "claude" => answer(stream, 200, &message()),
        "hanging" => {
            thread::sleep(HANGS);
            Ok(())
        }
        _ => answer(stream, 500, &json!({"error": {"message": "out of order"}})),
    };
}

/// Returns a response in Anthropic's protocol.
fn message() -> Value {
    json!({
        "id": "1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "hi"}],
        "usage": {"input_tokens": 5, "output_tokens": MESSAGE_USAGE - 5},
    })
}

fn answer(stream: &mut TcpStream, status: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} Any\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Streams this number of words. Without the last chunk, the response is incomplete.
fn send(stream: &mut TcpStream, words: usize) -> std::io::Result<()> {
    begin_stream(stream)?;
    for word in 0..words {
        let delta = json!({"role": "assistant", "content": format!("word{word} ")});
        send_event(
            stream,
            &chunk(&json!([{"index": 0, "delta": delta, "finish_reason": null}])).to_string(),
        )?;
        thread::sleep(BETWEEN_WORDS);
    }
    if words == WORDS {
        send_event(stream, &chunk(&json!([{"index": 0, "delta": {}, "finish_reason": "stop"}])).to_string())?;
        let mut usage = chunk(&json!([]));
        usage["usage"] = json!({"prompt_tokens": 5, "completion_tokens": USAGE - 5, "total_tokens": USAGE});
        send_event(stream, &usage.to_string())?;
        end_stream(stream)?;
    }
    Ok(())
}

fn begin_stream(stream: &mut TcpStream) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
}

fn end_stream(stream: &mut TcpStream) -> std::io::Result<()> {
    send_event(stream, "[DONE]")?;
    write!(stream, "0\r\n\r\n")
}

fn chunk(choices: &Value) -> Value {
    json!({"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices})
}

fn send_event(stream: &mut TcpStream, data: &str) -> std::io::Result<()> {
    let event = format!("data: {data}\n\n");
    write!(stream, "{:x}\r\n{event}\r\n", event.len())
}
