//! A host whose clock is minutes off, by its real agent: how far that costs nothing, and that it is told where it does.
//!
//! The agent's wall clock is moved by a library that is loaded before the system's: no other clock of the machine is touched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use holdfast_identity::files;
use holdfast_identity::tls::install_crypto_provider;

use crate::control_plane::{ControlPlane, program};

/// Moves the wall clock of the process by `CLOCK_OFF` seconds.
const SHIM: &str = "#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, \"clock_gettime\");
    int done = real(id, at);
    if (done == 0 && id == CLOCK_REALTIME) at->tv_sec += atol(getenv(\"CLOCK_OFF\"));
    return done;
}
";
/// A minute less than what certificates are good for before they were issued, and some minutes more.
const LITTLE: i64 = 4 * 60;
const MUCH: i64 = 10 * 60;

fn build_shim(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    fs::write(&source, SHIM).expect("the folder is ours");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl").output();
    let built = built.expect("a compiler is installed, as Rust needs one to link");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}

/// Enrols a host whose clock is so many seconds off.
fn enrol(plane: &ControlPlane, name: &str, off: i64) -> Output {
    let pin = fs::read_to_string(plane.keys("public").join("ca.pin")).expect("init made it");
    let mut command = Command::new(program("holdfast-agent"));
    command.env_clear().stdin(Stdio::null());
    command.env("LD_PRELOAD", plane.folder().join("clock.so")).env("CLOCK_OFF", off.to_string());
    command.arg("enrol").arg("--state").arg(plane.folder().join(name));
    command.arg("--token-file").arg(plane.folder().join("clock.token"));
    command.args(["--gateway", &format!("https://{}", plane.agents_door()), "--ca-pin", pin.trim(), "--name", name]);
    command.output().expect("it runs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c56_a_host_whose_clock_is_minutes_behind_or_ahead_is_enrolled_and_one_that_is_further_behind_is_told_so() {
    install_crypto_provider();
    let mut plane = ControlPlane::start().await;
    build_shim(plane.folder());
    let made = plane.holdfast(&["enrol-token", "create", "--uses", "5"]);
    assert!(made.status.success(), "{made:?}");
    files::write_secret(&plane.folder().join("clock.token"), &made.stdout).expect("the folder is ours");
    for (name, off) in [("behind", -LITTLE), ("ahead", LITTLE), ("far-ahead", MUCH)] {
        let enrolled = enrol(&plane, name, off);
        assert!(enrolled.status.success(), "{name}: {enrolled:?}");
        assert!(plane.folder().join(name).join("identity/enrolment.json").exists(), "{name}");
    }
    let refused = enrol(&plane, "far-behind", -MUCH);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("not valid yet"), "{said}");
    assert_eq!(plane.postgres.sql("SELECT count(*) FROM hosts").trim(), "3", "and nothing was asked of the plane");
    plane.assert_runs();
}
