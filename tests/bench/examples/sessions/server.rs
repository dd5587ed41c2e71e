//! A server from outside: a process that ends with the value, or a thread where a test runs.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::{SysconfVar, sysconf};

use crate::serve::{self, HELD, Order, PUSH};

/// Where a server runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In a process of its own, whose time and memory are its own.
    Process,
    /// In this process, for the test that the benchmark works: a test's program cannot be started as a server.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests are not started as servers"))]
    Thread,
}

/// A running server.
pub(crate) struct Server {
    commands: Option<Box<dyn Write + Send>>,
    told: Box<dyn BufRead + Send>,
    address: SocketAddr,
    child: Option<Child>,
}

/// What a process used so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Processor time.
    pub(crate) cpu: Duration,
    /// Memory that is resident.
    pub(crate) rss_bytes: f64,
}

impl Server {
    /// Starts one and waits until it listens.
    pub(crate) fn start(place: Place, order: &Order) -> Self {
        let (commands, told, child): (Box<dyn Write + Send>, Box<dyn BufRead + Send>, _) = match place {
            Place::Process => {
                let program = std::env::current_exe().expect("it runs");
                let order = serde_json::to_string(order).expect("it has a text form");
                let mut command = Command::new(program);
                command.args(["serve", &order]).stdin(Stdio::piped()).stdout(Stdio::piped());
                let mut child = command.spawn().expect("the benchmark starts itself");
                let commands = child.stdin.take().expect("a pipe was asked for");
                let told = child.stdout.take().expect("a pipe was asked for");
                (Box::new(commands), Box::new(BufReader::new(told)), Some(child))
            }
            Place::Thread => {
                let (near, far) = UnixStream::pair().expect("a pair");
                let (order, written) = (order.clone(), far.try_clone().expect("a second handle"));
                std::thread::spawn(move || serve::run(order, BufReader::new(far), written));
                let read = near.try_clone().expect("a second handle");
                (Box::new(near), Box::new(BufReader::new(read)), None)
            }
        };
        let mut server = Self { commands: Some(commands), told, address: ([0, 0, 0, 0], 0).into(), child };
        server.address = server.line().parse().expect("an address");
        server
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let count = self.told.read_line(&mut line).expect("the server says it");
        assert!(count > 0, "the server says where it listens, and what it is asked");
        line.trim_end().to_owned()
    }

    fn tell(&mut self, command: &str) {
        let commands = self.commands.as_mut().expect("it runs");
        writeln!(commands, "{command}").and_then(|()| commands.flush()).expect("the server listens");
    }

    /// The memory that sessions hold for agents to read, as the product says it.
    pub(crate) fn held_bytes(&mut self) -> f64 {
        self.tell(HELD);
        f64::from(self.line().parse::<u32>().expect("a number"))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells the floor to read and push; when it was told.
    pub(crate) fn push(&mut self) -> Instant {
        let begun = Instant::now();
        self.tell(PUSH);
        begun
    }

    pub(crate) fn usage(&self) -> Usage {
        let pid = self.child.as_ref().map_or_else(std::process::id, Child::id);
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the server runs");
        // The name in parentheses may hold anything; what follows it has no parenthesis.
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        let ticks = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u32>().expect("a number"));
        let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().expect("a kernel has a tick");
        let cpu = Duration::from_secs(ticks.map(u64::from).sum()) / u32::try_from(per_second).expect("a hundred");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
        let kib: u32 = rss.trim().trim_end_matches(" kB").trim().parse().expect("a number");
        Usage { cpu, rss_bytes: f64::from(kib) * 1_024.0 }
    }
}

impl Drop for Server {
    /// As a crash ends it: nobody is told to leave.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
        if let Some(mut commands) = self.commands.take() {
            // A thread's server ends with its lines, and both handles of ours must be gone for that.
            drop(commands.flush());
        }
    }
}
