//! Rolling restarts: what clients with kept connections notice of them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use trypema_testkit::program::Program;

use crate::client::Client;
use crate::harness::{Service, trypema};

const RESTARTS: usize = 4;
const CLIENTS: usize = 12;
/// The time under load before each restart.
const LOAD: Duration = Duration::from_millis(300);

const CHECK: &str = "POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: 28\r\n\r\n\
    {\"attributes\":{\"other\":\"x\"}}";
const FORWARD_AUTH: &str = "GET /v1/forward-auth HTTP/1.1\r\nhost: test\r\nx-forwarded-uri: /\r\n\
    x-forwarded-for: 203.0.113.9\r\n\r\n";
const RULES: &str = "
rules:
  - {id: per-address, scope: ip, strategy: {absolute: {limit: 1000000, window: 1h}}}
";

/// The requests of one client.
#[derive(Debug, Default)]
struct Sent {
    answered: u64,
    /// Requests on a kept connection that got no response.
    cut: u64,
}

/// No request is lost that is sent on a connection which has answered before: its client cannot know whether it was
/// counted. A new connection may be refused while no server listens.
#[test]
fn no_request_on_a_kept_connection_is_cut() {
    for delay in ["0s", "300ms"] {
        let mut service = Service::with_rules(RULES, &["--shutdown-delay", delay]);
        let (address, is_over) = (service.address, AtomicBool::new(false));
        let sent: Vec<Sent> = thread::scope(|scope| {
            let requests = (0..CLIENTS).map(|number| if number % 2 == 0 { CHECK } else { FORWARD_AUTH });
            let clients: Vec<_> =
                requests.map(|request| scope.spawn(|| send_until(address, request, &is_over))).collect();
            for _ in 0..RESTARTS {
                thread::sleep(LOAD);
                assert_eq!(service.stop().code(), Some(0), "{}", service.program.log());
                service.program = start_again(&service, delay);
            }
            thread::sleep(LOAD);
            is_over.store(true, Ordering::Relaxed);
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let (answered, cut) = (sent.iter().map(|sent| sent.answered), sent.iter().map(|sent| sent.cut));
        let (answered, cut): (u64, u64) = (answered.sum(), cut.sum());
        println!("shutdown_delay={delay}: {answered} requests answered, {cut} cut");
        assert_eq!(cut, 0, "of {answered} requests");
        assert!(sent.iter().all(|sent| sent.answered > 100), "{sent:?}");
    }
}

fn send_until(address: SocketAddr, request: &str, is_over: &AtomicBool) -> Sent {
    let mut sent = Sent::default();
    while !is_over.load(Ordering::Relaxed) {
        let Some(mut client) = Client::try_connect(address) else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        let mut is_kept = false;
        while !is_over.load(Ordering::Relaxed) {
            let reply = client.write(request.as_bytes()).ok().and_then(|()| client.read());
            let Some(reply) = reply else {
                sent.cut += u64::from(is_kept);
                break;
            };
            assert_eq!(reply.status, 200, "{reply:?}");
            sent.answered += 1;
            is_kept = true;
            if reply.header("connection") == Some("close") {
                break;
            }
        }
    }
    sent
}

/// Starts a server again at the same address.
fn start_again(service: &Service, delay: &str) -> Program {
    let mut again = Program::start(|directory| {
        std::fs::write(directory.join("rules.yaml"), RULES).unwrap();
        let mut command = trypema();
        command.args(["serve", "--listen", &service.address.to_string(), "--shutdown-delay", delay]);
        command.args(["--rules", "rules.yaml"]).current_dir(directory);
        command
    })
    .unwrap();
    again.line("listens on").unwrap();
    again
}
