use super::*;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

struct Server {
    child: Child,
    port: u16,
    dir: std::path::PathBuf,
    args: Vec<String>,
}
fn free_port() -> u16 {
    loop {
        let p = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if p < 50000 {
            return p;
        }
    }
}
impl Server {
    fn start(args: &[&str]) -> Self {
        Self::start_on(free_port(), args)
    }
    fn start_on(port: u16, args: &[&str]) -> Self {
        let dir = std::env::temp_dir().join(format!("link-trial-{port}"));
        std::fs::create_dir_all(&dir).unwrap();
        let args: Vec<String> = args.iter().map(|a| a.to_string()).collect();
        let child = Self::spawn(port, &dir, &args);
        let s = Server { child, port, dir, args };
        s.wait();
        s
    }
    fn spawn(port: u16, dir: &std::path::Path, args: &[String]) -> Child {
        Command::new("/usr/bin/redis-server")
            .args(args)
            .args([
                "--port",
                &port.to_string(),
                "--dir",
                dir.to_str().unwrap(),
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
    fn wait(&self) {
        for _ in 0..500 {
            if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no server")
    }
    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
    fn signal(&self, s: &str) {
        assert!(Command::new("kill").args([s, &self.child.id().to_string()]).status().unwrap().success());
    }
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
    fn restart(&mut self) {
        self.child = Self::spawn(self.port, &self.dir, &self.args);
        self.wait();
    }
    fn cli(&self, args: &[&str]) -> String {
        let o = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(args).output().unwrap();
        String::from_utf8_lossy(&o.stdout).trim().to_owned()
    }
}
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn incr(key: &str) -> ScriptCall {
    ScriptCall {
        script: Arc::new(Script::new("return redis.call('INCR', KEYS[1])".into())),
        keys: vec![key.as_bytes().to_vec()],
        arguments: vec![],
    }
}
async fn bounded(c: &RedisConnection, call: &ScriptCall) -> Option<Result<Value, RedisFailure>> {
    tokio::time::timeout(Duration::from_millis(50), c.run(call)).await.ok()
}
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

/// Calls until one succeeds; (time, answered failures, timeouts)
async fn until_ok(c: &RedisConnection, call: &ScriptCall, pace: u64) -> String {
    let t = now();
    let (mut un, mut unk, mut refu, mut to) = (0, 0, 0, 0);
    let mut last = String::new();
    loop {
        match bounded(c, call).await {
            Some(Ok(v)) => {
                return format!(
                    "{:?} -> {v:?}, unavailable {un}, unknown {unk}, refused {refu}, timeouts {to}; last {last}",
                    t.elapsed()
                );
            }
            Some(Err(f)) => {
                last = f.to_string();
                match f.kind() {
                    RedisFailureKind::Unavailable => un += 1,
                    RedisFailureKind::OutcomeUnknown => unk += 1,
                    _ => refu += 1,
                }
            }
            None => to += 1,
        }
        if t.elapsed() > Duration::from_secs(20) {
            return format!(
                "NEVER; unavailable {un}, unknown {unk}, refused {refu}, timeouts {to}; last {last}"
            );
        }
        tokio::time::sleep(Duration::from_millis(pace)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn single() {
    let mut s = Server::start(&[]);
    let c = RedisConnection::connect(&s.url()).await.unwrap();
    let call = incr("a");
    for n in 1..=10 {
        assert_eq!(c.run(&call).await.unwrap(), Value::Int(n));
    }
    s.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(c.run(&call).await.unwrap(), Value::Int(11));
    println!("wrongtype {:?}", {
        s.cli(&["SET", "w", "x"]);
        c.run(&incr("w")).await
    });
    s.cli(&["SLAVEOF", "127.0.0.1", "1"]);
    println!("readonly {:?}", c.run(&call).await);
    println!("readonly next {:?}", c.run(&call).await);
    s.cli(&["SLAVEOF", "NO", "ONE"]);
    println!("back {}", until_ok(&c, &call, 5).await);
    // idle restart
    tokio::time::sleep(Duration::from_millis(300)).await;
    s.kill();
    s.restart();
    tokio::time::sleep(Duration::from_millis(50)).await;
    println!("idle restart: {:?}", bounded(&c, &call).await);
    s.kill();
    for _ in 0..5 {
        println!("down: {:?}", bounded(&c, &call).await.map(|r| r.map_err(|f| f.to_string())));
    }
    tokio::time::sleep(Duration::from_millis(1000)).await;
    for _ in 0..3 {
        println!("down: {:?}", bounded(&c, &call).await.map(|r| r.map_err(|f| f.to_string())));
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    s.restart();
    println!("after restart: {}", until_ok(&c, &call, 5).await);
    s.signal("-STOP");
    let t = now();
    let mut slow = 0;
    let (mut un, mut to) = (0, 0);
    while t.elapsed() < Duration::from_secs(3) {
        match bounded(&c, &call).await {
            None => to += 1,
            Some(Err(_)) => un += 1,
            Some(Ok(v)) => panic!("{v:?}"),
        }
        slow += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("stopped: calls {slow} timeouts {to} fast {un}");
    s.signal("-CONT");
    println!("after cont: {}", until_ok(&c, &call, 5).await);
    // load
    let before: i64 = s.cli(&["GET", "load"]).parse().unwrap_or(0);
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let c = c.clone();
            tokio::spawn(async move {
                let mut ok = 0;
                for _ in 0..500 {
                    if c.run(&incr("load")).await.is_ok() {
                        ok += 1;
                    }
                }
                ok
            })
        })
        .collect();
    let mut ok = 0;
    for t in tasks {
        ok += t.await.unwrap();
    }
    let after: i64 = s.cli(&["GET", "load"]).parse().unwrap();
    assert_eq!((ok, after - before), (32000, 32000));
}

#[tokio::test(flavor = "multi_thread")]
async fn storm() {
    // kill under load; every reply counted once, every unknown at most once
    let mut s = Server::start(&["--appendonly", "no"]);
    let c = RedisConnection::connect(&s.url()).await.unwrap();
    let conns = s.cli(&["INFO", "stats"]);
    println!("{}", conns.lines().find(|l| l.starts_with("total_connections")).unwrap());
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (c, stop) = (c.clone(), stop.clone());
            tokio::spawn(async move {
                let (mut ok, mut un, mut unk) = (0u64, 0u64, 0u64);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    match bounded(&c, &incr("load")).await {
                        Some(Ok(_)) => ok += 1,
                        Some(Err(f)) if f.kind() == RedisFailureKind::Unavailable => {
                            un += 1;
                            tokio::time::sleep(Duration::from_millis(1)).await
                        }
                        _ => unk += 1,
                    }
                }
                (ok, un, unk)
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    for _ in 0..5 {
        s.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let stats = s.cli(&["INFO", "stats"]);
    println!("{}", stats.lines().find(|l| l.starts_with("total_connections")).unwrap());
    let count: u64 = s.cli(&["GET", "load"]).parse().unwrap();
    println!("count before kill {count}");
    s.signal("-STOP");
    tokio::time::sleep(Duration::from_millis(2000)).await;
    s.signal("-CONT");
    tokio::time::sleep(Duration::from_millis(1000)).await;
    let stats = s.cli(&["INFO", "stats"]);
    println!("{}", stats.lines().find(|l| l.starts_with("total_connections")).unwrap());
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut sum = (0, 0, 0);
    for t in tasks {
        let (a, b, d) = t.await.unwrap();
        sum = (sum.0 + a, sum.1 + b, sum.2 + d);
    }
    let count: u64 = s.cli(&["GET", "load"]).parse().unwrap();
    println!("ok {} un {} unk {} count {count}", sum.0, sum.1, sum.2);
    assert!(count >= sum.0 && count <= sum.0 + sum.2);
    s.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_places() {
    let s = Server::start(&[]);
    for url in [
        format!("redis://127.0.0.1:{}", free_port()),
        format!("rediss://127.0.0.1:{}", s.port),
        format!("redis://:pw@127.0.0.1:{}", s.port),
        format!("redis://u:pw@127.0.0.1:{}", s.port),
        format!("redis+cluster://127.0.0.1:{}", s.port),
        format!("redis+sentinel://127.0.0.1:{}/x", s.port),
        "redis://no.such.host.invalid".into(),
        format!("redis://127.0.0.1:{}/99", s.port),
        format!("unix:///tmp/nope.sock"),
        format!("redis://localhost:{}", s.port),
        format!("redis://localhost:{}?protocol=resp2", s.port),
    ] {
        let t = now();
        println!(
            "{url}: {:?} {:?}",
            RedisConnection::connect(&url).await.map_err(|e| e.to_string()),
            t.elapsed()
        );
    }
    // black hole: accepts, never answers
    let l = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", l.local_addr().unwrap());
    let t = now();
    println!("hole: {:?} {:?}", RedisConnection::connect(&url).await.map_err(|e| e.to_string()), t.elapsed());
    let c = RedisConnection::lazy(&url).unwrap();
    let t = now();
    let (mut to, mut un) = (0, 0);
    while t.elapsed() < Duration::from_secs(4) {
        match bounded(&c, &incr("x")).await {
            None => to += 1,
            Some(_) => un += 1,
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    l.set_nonblocking(true).unwrap();
    let mut dials = 0;
    while l.accept().is_ok() {
        dials += 1;
    }
    println!("hole: timeouts {to} fast {un} dials {dials}");
    // ACL
    s.cli(&["ACL", "SETUSER", "tiny", "on", ">pw", "~*", "+evalsha", "+eval", "+incr"]);
    let c = RedisConnection::connect(&format!("redis://tiny:pw@127.0.0.1:{}", s.port)).await;
    println!("tiny {c:?}");
    println!("tiny run {:?}", c.unwrap().run(&incr("acl")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn manager() {
    let mut s = Server::start(&[]);
    let m = ::redis::Client::open(s.url()).unwrap().get_connection_manager().await.unwrap();
    let c = RedisConnection::from(m);
    println!("{c:?} {:?}", c.run(&incr("m")).await);
    s.kill();
    for _ in 0..8 {
        println!("down: {:?}", bounded(&c, &incr("m")).await.map(|r| r.map_err(|f| f.to_string())));
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    s.restart();
    println!("after restart: {}", until_ok(&c, &incr("m"), 5).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinel() {
    let mut m = Server::start(&[]);
    let r = Server::start(&["--replicaof", "127.0.0.1", &m.port.to_string()]);
    let sp = free_port();
    let conf = std::env::temp_dir().join(format!("link-sentinel-{sp}.conf"));
    std::fs::write(&conf, format!("port {sp}\nsentinel monitor main 127.0.0.1 {} 1\nsentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 3000\n", m.port)).unwrap();
    let mut sen = Command::new("/usr/bin/redis-server")
        .args([conf.to_str().unwrap(), "--sentinel"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let url = format!("redis+sentinel://127.0.0.1:{},127.0.0.1:{sp}/main", free_port());
    let c = RedisConnection::connect(&url).await.unwrap();
    println!("run {:?}", c.run(&incr("a")).await);
    println!(
        "wrong service {:?}",
        RedisConnection::connect(&format!("redis+sentinel://127.0.0.1:{sp}/other"))
            .await
            .map_err(|e| e.to_string())
    );
    tokio::time::sleep(Duration::from_millis(1500)).await;
    // Forced failover.
    let cli = |a: &[&str]| {
        String::from_utf8(
            Command::new("redis-cli").args(["-p", &sp.to_string()]).args(a).output().unwrap().stdout,
        )
        .unwrap()
    };
    println!("failover {:?}", cli(&["SENTINEL", "FAILOVER", "main"]));
    let watch = std::thread::spawn({ let (old, sp) = (m.port.to_string(), sp.to_string()); move || loop { let out = Command::new("redis-cli").args(["-p", &sp, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]).output().unwrap(); if !String::from_utf8_lossy(&out.stdout).contains(&old) { let out = Command::new("redis-cli").args(["-p", &old, "GET", "a"]).output().unwrap(); return String::from_utf8_lossy(&out.stdout).trim().to_owned(); } std::thread::sleep(Duration::from_millis(5)); } });
    let t = now();
    let mut seen = vec![];
    while t.elapsed() < Duration::from_secs(8) {
        let what = match bounded(&c, &incr("a")).await {
            Some(Ok(_)) => "ok".to_string(),
            Some(Err(f)) => f.to_string(),
            None => "timeout".into(),
        };
        if seen.last().map(|(_, w): &(Duration, String)| w != &what).unwrap_or(true) {
            seen.push((t.elapsed(), what));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("{seen:#?}");
    println!("old at announcement {}", watch.join().unwrap());
    println!(
        "old {} new {} master {:?}",
        m.cli(&["GET", "a"]),
        r.cli(&["GET", "a"]),
        cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"])
    );
    println!(
        "roles old {} new {}",
        m.cli(&["ROLE"]).lines().next().unwrap(),
        r.cli(&["ROLE"]).lines().next().unwrap()
    );
    // Old one made master again behind the sentinel's back: nothing changes. Then kill the new master.
    drop(r);
    let t = now();
    println!("after kill of master: {} (at {:?})", until_ok(&c, &incr("a"), 5).await, t.elapsed());
    sen.kill().unwrap();
    sen.wait().unwrap();
    println!("without sentinel: {:?}", c.run(&incr("a")).await);
    m.kill();
    let _ = std::fs::remove_file(conf);
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster() {
    let mut nodes: Vec<Server> = (0..6)
        .map(|_| Server::start(&["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]))
        .collect();
    let mut args: Vec<String> = vec!["--cluster".into(), "create".into()];
    args.extend(nodes.iter().map(|n| format!("127.0.0.1:{}", n.port)));
    args.extend(["--cluster-replicas", "1", "--cluster-yes"].map(String::from));
    let out = Command::new("redis-cli").args(&args).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    for _ in 0..100 {
        if nodes.iter().all(|n| n.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok")) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!(
        "as single {:?}",
        RedisConnection::connect(&nodes[0].url())
            .await
            .unwrap()
            .run(&incr("zz1"))
            .await
            .map_err(|e| e.to_string())
    );
    println!(
        "as single {:?}",
        RedisConnection::connect(&nodes[1].url())
            .await
            .unwrap()
            .run(&incr("zz1"))
            .await
            .map_err(|e| e.to_string())
    );
    let url = format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", nodes[5].port, nodes[1].port);
    let c = RedisConnection::connect(&url).await.unwrap();
    for n in 0..100 {
        let k = format!("k{n}");
        assert_eq!(c.run(&incr(&k)).await.unwrap(), Value::Int(1));
        assert_eq!(nodes[0].cli(&["CLUSTER", "KEYSLOT", &k]), slot_of(k.as_bytes()).to_string());
    }
    for k in ["foo{}{bar}", "foo{{bar}}zap", "a{b}c{d}", "{", "}{", "{}"] {
        assert_eq!(nodes[0].cli(&["CLUSTER", "KEYSLOT", k]), slot_of(k.as_bytes()).to_string(), "{k}");
    }
    // ASK: move slot of "k2" halfway.
    let slot = slot_of(b"{k2}");
    let owner = {
        let s = slot as usize;
        [0, 5461, 10923].iter().rposition(|f| *f <= s).unwrap()
    };
    let to = (owner + 1) % 3;
    let id = |n: &Server| n.cli(&["CLUSTER", "MYID"]);
    let (oid, tid) = (id(&nodes[owner]), id(&nodes[to]));
    println!(
        "{} {}",
        nodes[to].cli(&["CLUSTER", "SETSLOT", &slot.to_string(), "IMPORTING", &oid]),
        nodes[owner].cli(&["CLUSTER", "SETSLOT", &slot.to_string(), "MIGRATING", &tid])
    );
    println!("still there {:?}", c.run(&incr("k2")).await);
    println!("asked {:?}", c.run(&incr("{k2}new")).await);
    println!("asked again {:?}", c.run(&incr("{k2}new")).await);
    nodes[owner].cli(&["MIGRATE", "127.0.0.1", &nodes[to].port.to_string(), "k2", "0", "1000"]);
    println!("k2 asked {:?}", c.run(&incr("k2")).await);
    let two = ScriptCall { keys: vec![b"{k2}new".to_vec(), b"{k2}none".to_vec()], ..incr("x") };
    println!("two keys {:?}", c.run(&two).await);
    for n in [to, owner] {
        nodes[n].cli(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &tid]);
    }
    println!("moved {:?}", c.run(&incr("k2")).await);
    println!("moved again {:?}", c.run(&incr("k2")).await);
    // Failover by hand, under load.
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let load = {
        let (c, stop) = (c.clone(), stop.clone());
        tokio::spawn(async move {
            let (mut ok, mut bad) = (0u64, std::collections::BTreeMap::new());
            let mut n = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                n += 1;
                match bounded(&c, &incr(&format!("l{}", n % 50))).await {
                    Some(Ok(_)) => ok += 1,
                    Some(Err(f)) => *bad.entry(f.to_string()).or_insert(0) += 1,
                    None => *bad.entry("timeout".into()).or_insert(0) += 1,
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            (ok, bad)
        })
    };
    let replica = nodes.iter().position(|n| n.cli(&["ROLE"]).starts_with("slave")).unwrap();
    println!("failover {}", nodes[replica].cli(&["CLUSTER", "FAILOVER"]));
    tokio::time::sleep(Duration::from_secs(3)).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let (ok, bad) = load.await.unwrap();
    let mut total = 0u64;
    for n in nodes.iter().filter(|n| n.cli(&["ROLE"]).starts_with("master")) {
        for k in 0..50 {
            total += n.cli(&["GET", &format!("l{k}")]).parse::<u64>().unwrap_or(0);
        }
    }
    println!("ok {ok} total {total} bad {bad:#?}");
    // Kill the owner of foo.
    let mut owner_index = None;
    for (i, n) in nodes.iter().enumerate() {
        if n.cli(&["ROLE"]).starts_with("master") && !n.cli(&["SET", "foo", "0"]).contains("MOVED") {
            owner_index = Some(i);
        }
    }
    let o = owner_index.unwrap();
    println!("foo {:?}", c.run(&incr("foo")).await);
    nodes[o].kill();
    let other = (0..6).find(|i| *i != o).unwrap();
    let t = now();
    let watch = std::thread::spawn({
        let port = nodes[other].port;
        let dead = nodes[o].port.to_string();
        move || {
            let mut down = None;
            for _ in 0..600 {
                let out = Command::new("redis-cli")
                    .args(["-p", &port.to_string(), "CLUSTER", "SLOTS"])
                    .output()
                    .unwrap();
                let text = String::from_utf8_lossy(&out.stdout).into_owned();
                if !text.contains(&dead) {
                    down = Some(t.elapsed());
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            down
        }
    });
    println!("after kill: {}", until_ok(&c, &incr("foo"), 5).await);
    println!(
        "cluster itself: {:?}",
        tokio::task::spawn_blocking(move || watch.join().unwrap()).await.unwrap()
    );
    drop(nodes);
    println!("all dead: {:?}", bounded(&c, &incr("foo")).await);
    println!("all dead: {:?}", bounded(&c, &incr("foo")).await);
}

#[cfg(feature = "redis-smol")]
#[test]
fn on_smol() {
    smol::block_on(async {
        let mut s = Server::start(&[]);
        let c = RedisConnection::connect(&s.url()).await.unwrap();
        println!("smol {:?}", c.run(&incr("a")).await);
        s.kill();
        s.restart();
        println!("smol idle restart {:?}", c.run(&incr("a")).await);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn short_deadlines_finish_a_long_dial() {
    // A server that answers HELLO after 200 ms: callers wait 50 ms each.
    let l = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", l.local_addr().unwrap());
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for s in l.incoming() {
            let mut s = s.unwrap();
            println!("accepted");
            std::thread::sleep(Duration::from_millis(200));
            let mut b = [0; 4096];
            let _ = s.read(&mut b);
            let _ = s.write_all(b"%1\r\n+server\r\n+redis\r\n+OK\r\n+OK\r\n");
            loop {
                let n = s.read(&mut b).unwrap_or(0);
                if n == 0 {
                    break;
                }
                let _ = s.write_all(b":7\r\n");
            }
        }
    });
    let c = RedisConnection::lazy(&url).unwrap();
    println!("long dial: {}", until_ok(&c, &incr("a"), 300).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn tls() {
    let dir = std::env::temp_dir().join("link-tls-certs"); std::fs::create_dir_all(&dir).unwrap();
    let (key, cert) = (dir.join("k.pem"), dir.join("c.pem"));
    assert!(Command::new("openssl").args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key.to_str().unwrap(), "-out", cert.to_str().unwrap(), "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]).output().unwrap().status.success());
    let port = free_port();
    let mut child = Command::new("/usr/bin/redis-server").args(["--port", "0", "--tls-port", &port.to_string(), "--tls-cert-file", cert.to_str().unwrap(), "--tls-key-file", key.to_str().unwrap(), "--tls-ca-cert-file", cert.to_str().unwrap(), "--tls-auth-clients", "no", "--save", ""]).stdout(Stdio::null()).spawn().unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    for url in [format!("rediss://localhost:{port}"), format!("rediss://127.0.0.1:{port}/#insecure"), format!("redis://localhost:{port}")] {
        let c = RedisConnection::connect(&url).await;
        println!("{url} {:?}", c.as_ref().map_err(|e| e.to_string()));
        if let Ok(c) = c { println!("{:?}", c.run(&incr("t")).await); }
    }
    child.kill().unwrap(); child.wait().unwrap();
}
