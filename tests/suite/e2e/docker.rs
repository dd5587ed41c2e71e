//! Real Docker on hosts that enforce: what is published and what containers ask for obey the host, and neither side touches the other's rules.
//!
//! - Three hosts of one plane, each with an engine of its own in another of the ways that engines run in.
//! - What is denied is first seen to pass while the host only watches, so nothing but our table denies it.
//! - Docker's nftables backend is not among the ways: it came with Docker 29, and Debian 12 has 20.10. Its rulesets are tried by the kernel test `beside`.

mod dock;

/// How an engine runs on a host.
#[derive(Clone, Copy, Debug)]
struct Way {
    host: &'static str,
    /// Arguments of `dockerd`.
    arguments: &'static [&'static str],
    by_old_iptables: bool,
    network: Network,
    v6: V6,
    /// Whether programs of the engine's carry what its rules do not translate.
    has_proxy: bool,
    /// Whether containers outlive the daemon.
    keeps_containers: bool,
}

/// The network that the container is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Network {
    /// The one that is always there.
    Default,
    /// One that was made for it, as compose makes them.
    Made,
}

/// How what is asked for by IPv6 reaches a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum V6 {
    /// Translated by rules, as IPv4; the container has an address of its own.
    Translated,
    /// Carried by the engine's program, over IPv4.
    Carried,
    /// Not at all.
    Absent,
}

const WAYS: [Way; 3] = [
    Way {
        host: "dock-1",
        arguments: &["--live-restore", "--experimental", "--ip6tables", "--ipv6", "--fixed-cidr-v6", dock::NETWORK_V6],
        by_old_iptables: false,
        network: Network::Default,
        v6: V6::Translated,
        has_proxy: true,
        keeps_containers: true,
    },
    // As Debian's Docker runs by itself, but for the old tools.
    Way {
        host: "dock-2",
        arguments: &[],
        by_old_iptables: true,
        network: Network::Default,
        v6: V6::Carried,
        has_proxy: true,
        keeps_containers: false,
    },
    Way {
        host: "dock-3",
        arguments: &["--userland-proxy=false"],
        by_old_iptables: false,
        network: Network::Made,
        v6: V6::Absent,
        has_proxy: false,
        keeps_containers: false,
    },
];

mod long_docker {
    use std::fs;

    use holdfast_suite::plane::{Plane, root};

    use super::WAYS;
    use super::dock::Dock;
    use crate::compose::traces_of_docker;
    use crate::fleet::nobody_complained;
    use crate::remains::Remains;

    #[test]
    fn published_ports_and_containers_obey_the_host_and_neither_docker_nor_we_touch_the_others_rules() {
        let (before, traces) = (Remains::observe(), traces_of_docker());
        let estate = root().join("tests/suite/e2e/docker/estate");
        let plane = Plane::start(&["--estate", estate.to_str().expect("a plain path")]);
        for way in WAYS {
            eprintln!("{way:?}");
            let dock = Dock::start(&plane, way);
            let folder = dock.folder();
            dock.all_is_open_while_the_host_watches();
            dock.is_obeyed_once_the_host_enforces();
            dock.answers_the_host_itself_where_egress_lets_it_ask();
            dock.an_edit_closes_and_opens_what_is_new_and_what_is_open();
            dock.containers_and_daemon_restart();
            dock.we_go_and_come_back();
            let left = dock.end();
            assert!(left.is_empty(), "the engine left {left:?}");
            assert!(!folder.exists(), "{} is still there", folder.display());
        }
        nobody_complained(&plane);
        let folder = plane.folder().to_owned();
        plane.wipe();
        let left = Remains::observe().beyond(&before, &folder);
        assert!(left.is_empty(), "these were left behind: {left:?}");
        assert!(!folder.exists() || fs::read_dir(&folder).expect("it is ours").next().is_none(), "{folder:?}");
        assert_eq!(traces_of_docker(), traces, "where the test is");
    }
}
