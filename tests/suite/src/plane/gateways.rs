//! A third gateway for agents beside the two that `ops/up` starts.
//!
//! - It is run as the second one, at the first one's port of the control plane's other address: agents dial no port that they were not enrolled with.
//! - All three then tell their agents of all three.
//! - What `ops/down` ends, ends it too.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Command;

use super::Plane;

/// Where it listens for agents, and for whoever looks after it: behind the ports of `ops/lib/plane.sh`.
pub const THIRD_PORT: u16 = 7443;
const THIRD_ADMIN: &str = "127.0.0.1:7095";
const THIRD: &str = "gateway-agents-3";

impl Plane {
    /// Starts a third gateway for agents and has the other two started anew with all three in their list.
    ///
    /// # Panics
    /// When one does not start.
    pub fn add_third_gateway(&self) {
        let second = self.recipe("gateway-agents-2");
        let address = format!("[{}]:{THIRD_PORT}", self.control_v6());
        let told = format!("{},{address}", second.setting("HOLDFAST_AGENTS_GATEWAYS"));
        let third = second.renamed(THIRD).with("HOLDFAST_AGENTS_LISTEN", &address);
        let third = third.with("HOLDFAST_ADMIN_LISTEN", THIRD_ADMIN).with("HOLDFAST_AGENTS_GATEWAYS", &told);
        // What is written down there is ended by `ops/down`.
        let services = self.folder().join("run/services");
        let written = OpenOptions::new().append(true).open(&services).and_then(|mut file| writeln!(file, "{THIRD}"));
        written.unwrap_or_else(|error| panic!("{}: {error}", services.display()));
        self.start_service(&third);
        self.wait_ready(THIRD, true);
        for service in ["gateway-agents-1", "gateway-agents-2"] {
            let recipe = self.recipe(service).with("HOLDFAST_AGENTS_GATEWAYS", &told);
            self.kill(service);
            self.start_service(&recipe);
            self.wait_ready(service, true);
        }
    }

    /// The address of the control plane by IPv6.
    fn control_v6(&self) -> String {
        let namespace = self.control();
        let show = ["-netns", &namespace, "-o", "-6", "address", "show", "scope", "global"];
        let output = Command::new("ip").args(show).output().expect("iproute2 is installed");
        let text = String::from_utf8_lossy(&output.stdout);
        let address = text.split_whitespace().find_map(|word| word.split_once('/')).map(|(address, _)| address);
        address.unwrap_or_else(|| panic!("{namespace}: no address in {text}")).to_owned()
    }
}
