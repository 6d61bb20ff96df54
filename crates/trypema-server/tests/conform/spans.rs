//! Trace spans: those that a collector receives, and the server's behaviour without a collector.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::Service;
#[cfg(feature = "unstable-testkit")]
use crate::in_process::InProcess;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CHECK: &str = r#"{"attributes":{"user":"ann"}}"#;

/// Accepts one export request as a collector does, and returns its body.
fn collected(listener: &TcpListener) -> Value {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json\r\n"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    answer(stream);
    serde_json::from_slice(&body).unwrap()
}

fn answer(mut stream: TcpStream) {
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
}

fn check_traced(service: &Service, flags: &str) -> u16 {
    let parent = format!("00-{TRACE}-b7ad6b7169203331-{flags}");
    service.client().send("POST", "/v1/check", &[("traceparent", &parent)], CHECK).status
}

#[test]
fn only_sampled_requests_become_spans_of_their_traces() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let mut service = Service::start(&["--otlp-endpoint", &endpoint]);
    assert_eq!(check_traced(&service, "00"), 200);
    assert_eq!(service.post("/v1/check", CHECK).status, 200);
    assert_eq!(check_traced(&service, "01"), 200);
    // The server sends pending spans before it stops.
    service.program.signal("TERM").unwrap();
    let sent = collected(&listener);
    assert!(service.program.end().unwrap().success());

    let resource = &sent["resourceSpans"][0];
    assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], json!("trypema"));
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    let [span] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(TRACE), &json!("b7ad6b7169203331")));
    assert_eq!((&span["name"], &span["kind"]), (&json!("check"), &json!(2)));
    let id = span["spanId"].as_str().unwrap();
    assert!(id.len() == 16 && u64::from_str_radix(id, 16).unwrap() != 0, "{id}");
    let nanos = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    assert!(nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"));
    let status = json!({"key": "http.response.status_code", "value": {"intValue": "200"}});
    assert!(span["attributes"].as_array().unwrap().contains(&status));
}

#[test]
fn without_its_collector_nothing_waits_and_what_is_dropped_is_counted() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut service = Service::start(&["--otlp-endpoint", &format!("http://{nobody}")]);
    assert_eq!(check_traced(&service, "01"), 200);
    service.program.line("spans: cannot send to otlp_endpoint").unwrap();
    trypema_testkit::redis::wait_until("the span to be counted", || {
        service.metric("trypema_spans_dropped_total") == 1.0
    })
    .unwrap();
    assert!(service.stop().success());
}

/// Another front end has the same spans.
#[cfg(feature = "unstable-testkit")]
#[test]
fn the_line_protocol_has_the_spans_of_http() {
    let span = |is_by_lines: bool| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("otlp_endpoint: http://{}\n", listener.local_addr().unwrap());
        let service = InProcess::start(&endpoint);
        let service = if is_by_lines { service.by_lines() } else { service };
        let mut client = service.check_client();
        for flags in ["01", "00"] {
            let parent = format!("00-{TRACE}-b7ad6b7169203331-{flags}");
            assert_eq!(client.send("POST", "/v1/check", &[("traceparent", &parent)], CHECK).status, 200);
        }
        let collecting = std::thread::spawn(move || collected(&listener));
        // The server sends pending spans before it stops.
        drop(service);
        let sent = collecting.join().unwrap();
        let spans = sent["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
        let [span] = &spans[..] else { panic!("{spans:?}") };
        ["traceId", "parentSpanId", "name", "kind", "attributes"].map(|field| span[field].clone())
    };
    assert_eq!(span(true), span(false));
}
