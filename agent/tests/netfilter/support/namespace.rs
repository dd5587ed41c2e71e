//! Network namespaces that live as long as a value.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Pid, gettid};

use super::output_of;

const PATIENCE: Duration = Duration::from_secs(5);

type Work = Box<dyn FnOnce() + Send>;

/// A network namespace that belongs to a thread; it ends with the value.
pub(crate) struct Namespace {
    work: Option<SyncSender<Work>>,
    thread: Option<JoinHandle<()>>,
    tid: Pid,
}

impl Namespace {
    /// A new one, with only a loopback interface, which is up.
    pub(crate) fn new() -> Self {
        let (work, inbox) = sync_channel::<Work>(1);
        let (told, tid) = sync_channel(1);
        let thread = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("root may make namespaces");
            told.send(gettid()).expect("the maker waits");
            for work in inbox {
                work();
            }
        });
        let tid = tid.recv().expect("the thread is in its namespace");
        let namespace = Self { work: Some(work), thread: Some(thread), tid };
        namespace.run(|| output_of("ip", &["link", "set", "lo", "up"]));
        namespace
    }

    /// Two, joined by a cable: `10.77.0.1` and `fd77::1` in the first, `.2` and `::2` in the second; interface `eth0`.
    pub(crate) fn pair() -> (Self, Self) {
        let (first, second) = (Self::new(), Self::new());
        first.cable("eth0", &second, "eth0");
        first.address("eth0", &["10.77.0.1/24", "fd77::1/64"]);
        second.address("eth0", &["10.77.0.2/24", "fd77::2/64"]);
        first.wait_for("eth0");
        second.wait_for("eth0");
        (first, second)
    }

    /// One more behind this one, as a container is: `10.88.0.2` and `fd88::2`, which this one forwards for.
    pub(crate) fn container(&self) -> Self {
        let inner = Self::new();
        self.cable("inside0", &inner, "eth0");
        self.address("inside0", &["10.88.0.1/24", "fd88::1/64"]);
        self.forward();
        inner.address("eth0", &["10.88.0.2/24", "fd88::2/64"]);
        self.wait_for("inside0");
        inner.wait_for("eth0");
        inner.route("default", "10.88.0.1");
        inner.route("default", "fd88::1");
        inner
    }

    /// A cable to another one: an interface on each side, both down.
    pub(crate) fn cable(&self, near: &str, far: &Self, far_name: &str) {
        let path = format!("/proc/{}/task/{}/ns/net", std::process::id(), far.tid);
        let (near, far_name) = (near.to_owned(), far_name.to_owned());
        self.run(move || {
            let pair = ["link", "add", &near, "type", "veth", "peer", "name", &far_name, "netns", &path];
            output_of("ip", &pair)
        });
    }

    /// Gives an interface addresses and puts it up; nobody else on its cable has them, so none is waited for.
    pub(crate) fn address(&self, interface: &'static str, addresses: &'static [&'static str]) {
        self.run(move || {
            let detection = format!("/proc/sys/net/ipv6/conf/{interface}/accept_dad");
            std::fs::write(detection, "0").expect("root may say how addresses are found");
            for address in addresses {
                output_of("ip", &["address", "add", address, "dev", interface]);
            }
            output_of("ip", &["link", "set", interface, "up"]);
        });
    }

    /// Waits until an interface carries packets: the kernel sees a moment late that both ends of a cable are up, and then settles its addresses.
    pub(crate) fn wait_for(&self, interface: &'static str) {
        self.run(move || {
            let deadline = Instant::now() + PATIENCE;
            let is_ready = || {
                let shown = output_of("ip", &["address", "show", "dev", interface]);
                shown.contains("state UP") && shown.contains("inet6 fe80:") && !shown.contains("tentative")
            };
            while !is_ready() {
                assert!(Instant::now() < deadline, "{interface} is not up within {PATIENCE:?}");
            }
        });
    }

    /// A route by a next hop.
    pub(crate) fn route(&self, to: &'static str, by: &'static str) {
        let family = if by.contains(':') { "-6" } else { "-4" };
        self.run(move || output_of("ip", &[family, "route", "add", to, "via", by]));
    }

    /// Makes it a router of both families.
    pub(crate) fn forward(&self) {
        self.run(|| {
            for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                std::fs::write(format!("/proc/sys/net/{switch}"), "1").expect("root may forward");
            }
        });
    }

    /// Runs something inside and waits for it.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = sync_channel(1);
        let work: Work = Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(work));
            drop(done.send(result));
        });
        self.work.as_ref().expect("alive").send(work).expect("the thread takes work");
        match result.recv().expect("the work ended") {
            Ok(value) => value,
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.work.take();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
