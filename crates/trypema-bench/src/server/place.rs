//! The prerequisites of a run: the programs that take part, installed or built if missing, and a directory.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

const PEER: &str = "throttlecrab-server";
const PEER_VERSION: &str = "0.4.40";
/// The build settings of every contender, equal to the release profiles here and in the main workspace.
const PROFILE: [(&str, &str); 2] =
    [("CARGO_PROFILE_RELEASE_LTO", "fat"), ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")];
const MAIN_WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");

pub struct Place {
    pub throttlecrab: PathBuf,
    pub ours: PathBuf,
    directory: PathBuf,
}

impl Place {
    /// Installs missing programs outside the repository, and prints a message for each.
    pub fn prepare() -> Result<Self, String> {
        install_from_debian("wrk", "wrk")?;
        let (throttlecrab, ours) = (install_throttlecrab()?, build_ours()?);
        let directory = env::temp_dir().join(format!("trypema-bench-{}", process::id()));
        fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        Ok(Self { throttlecrab, ours, directory })
    }

    /// Writes a file into the directory of this run.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.directory.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Installs a Debian package unless its program is present.
fn install_from_debian(program: &str, package: &str) -> Result<(), String> {
    // Only whether the program starts matters. It may reject the argument.
    let mut version = Command::new(program);
    if version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok() {
        return Ok(());
    }
    eprintln!("{program} is missing: installing Debian's package {package}");
    let apt_get =
        |arguments: &[&str]| run(Command::new("apt-get").args(["--yes", "--quiet"]).args(arguments));
    // The package lists may be missing, as in a fresh container.
    let install = || apt_get(&["install", package]);
    let installed = install().or_else(|_| apt_get(&["update"]).and_then(|()| install()));
    installed
        .map_err(|why| format!("install {program} (on Debian, as root: `apt-get install {package}`): {why}"))
}

fn install_throttlecrab() -> Result<PathBuf, String> {
    let root = cache_directory()?;
    let program = root.join("bin").join(PEER);
    let output = Command::new(&program).arg("--version").output();
    if output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(PEER_VERSION)) {
        return Ok(program);
    }
    eprintln!("{PEER} {PEER_VERSION} is missing: installing it from crates.io below {}", root.display());
    // throttlecrab's gRPC front end needs it to build, and cannot be left out.
    install_from_debian("protoc", "protobuf-compiler")?;
    let mut cargo = cargo();
    cargo.args(["install", PEER, "--force", "--version", PEER_VERSION, "--root"]).arg(&root).envs(PROFILE);
    run(&mut cargo).map_err(|why| format!("install {PEER} {PEER_VERSION}: {why}"))?;
    Ok(program)
}

fn cache_directory() -> Result<PathBuf, String> {
    let of_home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let caches = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(of_home);
    caches.map(|caches| caches.join("trypema-bench")).ok_or_else(|| "HOME is not set".to_owned())
}

/// Builds `trypema` and returns the path that Cargo reports.
pub fn build_ours() -> Result<PathBuf, String> {
    let mut cargo = cargo();
    cargo.args(["build", "--release", "--package", "trypema-server", "--manifest-path", MAIN_WORKSPACE]);
    cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = cargo.output().map_err(|error| format!("cargo could not be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("building trypema-server ended with {}", output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut programs = messages.filter(|message| message["target"]["name"] == "trypema");
    let program = programs.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    program.ok_or_else(|| "trypema-server has no program named trypema".to_owned())
}

fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn run(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("it ended with {status}")),
        Err(error) => Err(error.to_string()),
    }
}
