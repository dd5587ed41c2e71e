//! Network namespaces that one thread goes in and out of.

use std::fs::File;

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace without anything in it; it ends when the value, the sockets in it and the thread have left it.
pub(crate) struct Space(File);

impl Space {
    /// Makes one and enters it.
    ///
    /// # Panics
    /// Without the right to: there is nothing to measure then.
    pub(crate) fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).expect("root may make namespaces");
        Self(File::open("/proc/thread-self/ns/net").expect("the thread is in a namespace"))
    }

    /// What this thread opens and starts from now on is in it.
    ///
    /// # Panics
    /// Without the right to.
    pub(crate) fn enter(&self) {
        setns(&self.0, CloneFlags::CLONE_NEWNET).expect("root may enter its namespace");
    }
}
