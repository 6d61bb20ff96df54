//! The compose file, the Dockerfile and Traefik's file. The tests cannot start containers, and `docker
//! compose` is not installed everywhere, so they compare what the files say about each other and about the
//! server.

use std::net::Ipv4Addr;
use std::process::Command;

use serde_json::Value;

use crate::{deployed, text_of};

use super::{run, texts, yaml_of};

#[test]
fn compose_reads_it_where_there_is_compose() {
    let has_compose = Command::new("docker").args(["compose", "version"]).output();
    if has_compose.is_ok_and(|output| output.status.success()) {
        run(Command::new("docker")
            .args(["compose", "-f"])
            .arg(deployed("compose.yaml"))
            .args(["config", "--quiet"]));
    } else {
        eprintln!("there is no `docker compose` here: the file is only read as YAML");
    }
    let compose = yaml_of("compose.yaml");
    let services: Vec<_> = compose["services"].as_object().unwrap().keys().collect();
    assert_eq!(services, ["grafana", "prometheus", "redis", "trypema"]);
}

#[test]
fn what_services_name_is_there() {
    let compose = yaml_of("compose.yaml");
    for (name, service) in compose["services"].as_object().unwrap() {
        for mount in texts(&service["volumes"]) {
            let source = mount.split(':').next().unwrap();
            assert!(deployed(source).exists(), "{name}: {source}");
        }
        for network in texts(&service["networks"]) {
            assert!(compose["networks"].get(network).is_some(), "{name}: {network}");
        }
        for needed in service["depends_on"].as_object().into_iter().flat_map(|needed| needed.keys()) {
            assert!(compose["services"][needed].get("healthcheck").is_some(), "{name}: {needed}");
        }
        for port in texts(&service["ports"]) {
            assert!(port.starts_with("127.0.0.1:"), "{name}: {port} is for everybody");
        }
        let image = service["image"].as_str();
        let is_built = service["build"]["dockerfile"].is_string();
        assert!(is_built || image.is_some_and(|image| image.contains(':')), "{name}: which image?");
    }
}

#[test]
fn services_find_each_other() {
    let compose = yaml_of("compose.yaml");
    let trypema = &compose["services"]["trypema"];
    let environment = &trypema["environment"];
    assert_eq!(environment["TRYPEMA_REDIS_URL"], "redis://redis:6379");
    let port = environment["TRYPEMA_ADMIN_LISTEN"].as_str().unwrap().rsplit(':').next().unwrap();
    let target =
        &yaml_of("prometheus/prometheus.yml")["scrape_configs"][0]["static_configs"][0]["targets"][0];
    assert_eq!(target, &Value::from(format!("trypema:{port}")));
    let runtime = environment["RUNTIME_DIRECTORY"].as_str().unwrap();
    assert!(
        texts(&trypema["tmpfs"])[0].starts_with(&format!("{runtime}:mode=0700,")),
        "for the generated token"
    );
    let source = &yaml_of("grafana/provisioning/datasources/prometheus.yaml")["datasources"][0]["url"];
    assert_eq!(source, "http://prometheus:9090");

    let config = texts(&trypema["command"])[2];
    let inside = |mount: &str| {
        let parts: Vec<&str> = mount.split(':').collect();
        config
            .strip_prefix(parts[1])
            .is_some_and(|rest| deployed(parts[0]).join(rest.trim_start_matches('/')).exists())
    };
    assert!(texts(&trypema["volumes"]).into_iter().any(inside), "{config} is not mounted");
}

/// Requests from the host and through published ports arrive from the gateway. Other services have addresses
/// in `ip_range`.
#[test]
fn only_the_address_of_the_proxy_is_trusted() {
    let compose = yaml_of("compose.yaml");
    let trusted = compose["services"]["trypema"]["environment"]["TRYPEMA_TRUSTED_PROXIES"].as_str().unwrap();
    let proxy: Ipv4Addr = trusted.strip_suffix("/32").expect("one address").parse().unwrap();
    let network = &compose["networks"]["limits"]["ipam"]["config"][0];
    assert!(contains(&network["subnet"], proxy), "{proxy} is not in the network");
    assert!(!contains(&network["ip_range"], proxy), "{proxy} may become the address of another service");
    assert_ne!(network["gateway"].as_str(), Some(proxy.to_string().as_str()));
    let others = compose["services"].as_object().unwrap().values().filter(|service| {
        service["networks"]
            .pointer("/limits/ipv4_address")
            .is_some_and(|address| *address != proxy.to_string())
    });
    assert_eq!(others.count(), 0, "another address is pinned than the one that is trusted");
}

/// Whether a network such as `172.30.84.0/24` contains this address.
fn contains(network: &Value, address: Ipv4Addr) -> bool {
    let (start, length) = network.as_str().unwrap().split_once('/').unwrap();
    let host_bits = 32 - length.parse::<u32>().unwrap();
    let start = start.parse::<Ipv4Addr>().unwrap();
    u32::from(start) >> host_bits == u32::from(address) >> host_bits
}

#[test]
fn the_dashboard_is_where_grafana_looks() {
    let compose = yaml_of("compose.yaml");
    let grafana = &compose["services"]["grafana"];
    let home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"].as_str().unwrap();
    assert!(texts(&grafana["volumes"]).contains(&format!("./grafana/trypema.json:{home}:ro").as_str()));
    let provider = &yaml_of("grafana/provisioning/dashboards/trypema.yaml")["providers"][0];
    assert!(home.starts_with(provider["options"]["path"].as_str().unwrap()));
}

#[test]
fn the_image_is_built_of_what_is_here() {
    let text = text_of("Dockerfile");
    assert!(text.contains(&format!("--package {} ", env!("CARGO_PKG_NAME"))));
    let binary = env!("CARGO_BIN_EXE_trypema").rsplit('/').next().unwrap();
    assert!(text.contains(&format!("target/release/{binary} ")));
    let compiler = text.split_once("FROM rust:").unwrap().1.split('-').next().unwrap();
    assert!(version(compiler) >= version(env!("CARGO_PKG_RUST_VERSION")), "{compiler} cannot compile it");
    assert!(deployed("Dockerfile.dockerignore").exists());
}

#[test]
fn traefik_asks_the_service() {
    let traefik = &yaml_of("traefik/dynamic.yaml")["http"];
    let asked = &traefik["middlewares"]["limits"]["forwardAuth"];
    assert_eq!(asked["address"], "http://127.0.0.1:8080/v1/forward-auth/default");
    assert_eq!(asked["trustForwardHeader"], false);
    assert_eq!(texts(&traefik["routers"]["application"]["middlewares"]), ["limits"]);
    assert!(
        traefik["services"].get(traefik["routers"]["application"]["service"].as_str().unwrap()).is_some()
    );
}

fn version(text: &str) -> Vec<u32> {
    text.split('.').map(|part| part.parse().unwrap()).collect()
}
