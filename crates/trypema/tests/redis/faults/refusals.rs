//! The server replies with a refusal: nothing was spent.

use trypema_testkit::redis::Server;

use super::load::Counts;
use super::on_both_links;
use super::scene::{Link, Scene};

on_both_links!(oom, readonly, permission_withdrawn, permission_of_scripts_withdrawn);

/// The commands that make a server start and stop refusing.
struct Refusal<'a> {
    begin: &'a [&'a str],
    end: &'a [&'a str],
}

impl Refusal<'_> {
    fn is_survived_on(&self, scene: &Scene) -> Counts {
        let load = scene.load();
        for _ in 0..2 {
            scene.command(self.begin);
            load.wait_until_failing();
            scene.command(self.end);
            load.wait_until_served();
        }
        let counts = load.finish();
        counts.assert_known_unspent();
        assert!(counts.refused > 0, "{counts:?}");
        assert_eq!(scene.counted(), counts.admitted, "{counts:?}");
        counts
    }
}

/// `noeviction`, the default: writes are refused, and no key is evicted.
fn oom(link: Link) {
    let full =
        Refusal { begin: &["CONFIG", "SET", "maxmemory", "1"], end: &["CONFIG", "SET", "maxmemory", "0"] };
    let scene = Scene::answering(Server::start().unwrap(), link);
    let counts = full.is_survived_on(&scene);
    assert_eq!(counts.unavailable, 0, "a server that answers is not given up: {counts:?}");
    // Reads still succeed.
    scene.command(full.begin);
    assert_eq!(scene.counted(), counts.admitted);
}

/// A primary that became a replica of an unreachable primary.
fn readonly(link: Link) {
    let demoted = Refusal { begin: &["REPLICAOF", "127.0.0.1", "1"], end: &["REPLICAOF", "NO", "ONE"] };
    demoted.is_survived_on(&Scene::answering(Server::start().unwrap(), link));
}

fn permission_withdrawn(link: Link) {
    let withdrawn = Refusal {
        begin: &["ACL", "SETUSER", "limiter", "-evalsha", "-eval"],
        end: &["ACL", "SETUSER", "limiter", "+evalsha", "+eval"],
    };
    let server = Server::builder().user("limiter on >secret ~* &* +@all").start().unwrap();
    let url = server.url_as("limiter", "secret");
    withdrawn.is_survived_on(&Scene::answering_at(&url, server, link));
}

/// The user may run scripts, and not the command with which they write.
fn permission_of_scripts_withdrawn(link: Link) {
    let withdrawn = Refusal {
        begin: &["ACL", "SETUSER", "limiter", "-set", "-setrange"],
        end: &["ACL", "SETUSER", "limiter", "+set", "+setrange"],
    };
    let server = Server::builder().user("limiter on >secret ~* &* +@all").start().unwrap();
    let url = server.url_as("limiter", "secret");
    let counts = withdrawn.is_survived_on(&Scene::answering_at(&url, server, link));
    assert_eq!(counts.unavailable, 0, "a server that answers is not given up: {counts:?}");
}
