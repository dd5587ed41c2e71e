//! Network namespaces that live as long as a value.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Pid, gettid};

use super::output_of;

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
        first.run(|| output_of("ip", &["link", "add", "eth0", "type", "veth", "peer", "name", "far0"]));
        let path = format!("/proc/{}/task/{}/ns/net", std::process::id(), second.tid);
        first.run(move || output_of("ip", &["link", "set", "far0", "netns", &path]));
        second.run(|| output_of("ip", &["link", "set", "far0", "name", "eth0"]));
        for (namespace, v4, v6) in [(&first, "10.77.0.1/24", "fd77::1/64"), (&second, "10.77.0.2/24", "fd77::2/64")] {
            namespace.run(move || {
                output_of("ip", &["address", "add", v4, "dev", "eth0"]);
                output_of("ip", &["address", "add", v6, "dev", "eth0", "nodad"]);
                output_of("ip", &["link", "set", "eth0", "up"]);
            });
        }
        (first, second)
    }

    /// One more behind this one, as a container is: `10.88.0.2`, which this one forwards for.
    pub(crate) fn container(&self) -> Self {
        let inner = Self::new();
        let path = format!("/proc/{}/task/{}/ns/net", std::process::id(), inner.tid);
        self.run(move || {
            output_of("ip", &["link", "add", "inside0", "type", "veth", "peer", "name", "far0"]);
            output_of("ip", &["link", "set", "far0", "netns", &path]);
            output_of("ip", &["address", "add", "10.88.0.1/24", "dev", "inside0"]);
            output_of("ip", &["link", "set", "inside0", "up"]);
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("root may forward");
        });
        inner.run(|| {
            output_of("ip", &["address", "add", "10.88.0.2/24", "dev", "far0"]);
            output_of("ip", &["link", "set", "far0", "up"]);
            output_of("ip", &["route", "add", "default", "via", "10.88.0.1"]);
        });
        inner
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
