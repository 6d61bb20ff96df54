//! Looks up the server of a key, for users that store their own data next to the counters.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use trypema::TrypemaError;
use trypema::redis::client::{Client, ConnectionAddr};
use trypema::redis::{RedisConnection, RedisFailureKind};
use trypema_testkit::blocking::{connect, wait_for};
use trypema_testkit::redis::Server;

/// The port of the server that stores `key`.
pub(crate) fn port_of(connection: &RedisConnection, key: &str) -> u16 {
    match wait_for(connection.server_of(key)).unwrap().addr() {
        ConnectionAddr::Tcp(_, port) => *port,
        _ => 0,
    }
}

#[test]
fn one_server_is_that_of_the_address_with_its_login() {
    let server = Server::builder().password("secret").start().unwrap();
    let connection = connect(&server.url());
    let info = wait_for(connection.server_of("ann")).unwrap();
    assert_eq!(port_of(&connection, "ann"), server.port());
    let own = wait_for(Client::open(info).unwrap().get_multiplexed_async_connection());
    assert!(own.is_ok(), "it can be connected to");
    drop(server);
    assert!(wait_for(connection.server_of("ann")).is_ok(), "nobody has to be asked");
}

#[test]
fn a_connection_manager_does_not_tell() {
    let server = Server::start().unwrap();
    let client = Client::open(server.url()).unwrap();
    let manager = wait_for(client.get_connection_manager()).unwrap();
    let refused = wait_for(RedisConnection::from(manager).server_of("ann")).unwrap_err();
    let TrypemaError::RedisError(failure) = &refused else { panic!("{refused}") };
    assert_eq!(failure.kind(), RedisFailureKind::Refused);
    assert!(refused.to_string().contains("ConnectionManager"), "{refused}");
}

#[test]
fn where_nobody_answers_is_an_error() {
    let server = Server::start().unwrap();
    let port = server.port();
    drop(server);
    for scheme in ["redis+sentinel", "redis+cluster"] {
        let path = if scheme == "redis+sentinel" { "/main" } else { "" };
        let connection = RedisConnection::lazy(&format!("{scheme}://127.0.0.1:{port}{path}")).unwrap();
        let failed = wait_for(connection.server_of("ann")).unwrap_err();
        assert!(matches!(failed, TrypemaError::RedisError(_)), "{scheme}: {failed}");
    }
}
