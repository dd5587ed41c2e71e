//! A real nats-server on loopback, on the disk of the machine or on a small one that can be filled.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ballast;
use crate::ports::free_port;

/// Which nats-server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NatsVersion {
    /// The one that the lab runs.
    Current,
    /// The oldest that we promise to work with.
    Floor,
}

impl NatsVersion {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Current, Self::Floor];

    fn program(self) -> OsString {
        let variable = match self {
            Self::Current => "HOLDFAST_NATS_SERVER",
            Self::Floor => "HOLDFAST_NATS_SERVER_FLOOR",
        };
        std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} names no nats-server; run ./ops/test"))
    }
}

/// A running server with JetStream, its store in a folder of its own.
pub struct NatsServer {
    version: NatsVersion,
    port: u16,
    folder: tempfile::TempDir,
    child: Option<Child>,
    /// The folder with its keys and configuration; without one it has neither TLS nor users.
    keys: Option<PathBuf>,
    /// Its place in a cluster, if it is in one.
    member: Option<Member>,
    /// The disk of its store, if that is a small one.
    disk: Option<Disk>,
}

/// A file system of some MiB in memory that nobody sees but who is in a namespace of mounts, held open by a process of its own: with that, all of it is gone,
/// also if the test dies.
struct Disk {
    holder: Child,
    /// Its root, as it is seen from outside.
    root: PathBuf,
}

impl Disk {
    /// Mounts one at a folder.
    fn mount(at: &Path, mib: usize) -> Self {
        // It ends with its input, which is the test's end of a pipe.
        let script = format!("mount -t tmpfs -o size={mib}m holdfast-test \"$0\" && echo mounted && exec cat");
        let mut holder = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script])
            .arg(at)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("util-linux is installed");
        let mut said = String::new();
        BufReader::new(holder.stdout.take().expect("it is piped")).read_line(&mut said).expect("it says something");
        assert_eq!(said, "mounted\n", "a test with a full disk needs root");
        let inside = at.strip_prefix("/").expect("a whole path");
        let root = Path::new("/proc").join(holder.id().to_string()).join("root").join(inside);
        Self { holder, root }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}

/// A place in a cluster.
struct Member {
    name: String,
    routes: String,
    port: u16,
}

impl NatsServer {
    /// Starts one and waits until it listens.
    #[must_use]
    pub fn start(version: NatsVersion) -> Self {
        let port = free_port();
        let folder = tempfile::tempdir().expect("a folder for the store");
        let mut server = Self { version, port, folder, child: None, keys: None, member: None, disk: None };
        server.resume();
        server
    }

    /// Starts one with the configuration that `holdfast-renderer init` made in a folder.
    #[must_use]
    pub fn start_with(version: NatsVersion, keys: &Path) -> Self {
        Self::start_on(version, keys, None)
    }

    /// The same with its store on a disk of so many MiB. Needs root.
    #[must_use]
    pub fn start_on_small_disk(version: NatsVersion, keys: &Path, mib: usize) -> Self {
        Self::start_on(version, keys, Some(mib))
    }

    fn start_on(version: NatsVersion, keys: &Path, mib: Option<usize>) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the store");
        let store = folder.path().join("store");
        std::fs::create_dir(&store).expect("the folder is ours");
        let disk = mib.map(|mib| Disk::mount(&store, mib));
        let (port, keys_of) = (free_port(), Some(keys.to_owned()));
        let mut server = Self { version, port, folder, child: None, keys: keys_of, member: None, disk };
        let text = format!(
            "listen: \"127.0.0.1:{}\"\njetstream {{ store_dir: \"{}\" }}\ninclude \"holdfast.conf\"\n",
            server.port,
            store.display()
        );
        std::fs::write(keys.join("server.conf"), text).expect("the folder is ours");
        server.resume();
        server
    }

    /// Starts three of one cluster, named `n0` to `n2`, and waits until each listens.
    #[must_use]
    pub fn start_cluster(version: NatsVersion) -> [Self; 3] {
        let ports = [free_port(), free_port(), free_port()];
        let routes = ports.map(|port| format!("nats://127.0.0.1:{port}")).join(",");
        let mut n = 0;
        ports.map(|port| {
            let member = Member { name: format!("n{n}"), routes: routes.clone(), port };
            n += 1;
            let folder = tempfile::tempdir().expect("a folder for the store");
            let mut server =
                Self { version, port: free_port(), folder, child: None, keys: None, member: Some(member), disk: None };
            server.resume();
            server
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The files with the messages of a stream, oldest first.
    ///
    /// # Panics
    /// When there are none.
    #[must_use]
    pub fn blocks_of(&self, stream: &str) -> Vec<PathBuf> {
        let folder = self.folder.path().join("store/jetstream/$G/streams").join(stream).join("msgs");
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut blocks: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        blocks.retain(|path| path.extension().is_some_and(|extension| extension == "blk"));
        blocks.sort();
        blocks
    }

    /// Fills its small disk to the last byte.
    ///
    /// # Panics
    /// When it has none, or something else than the end of the room ends it.
    pub fn fill_disk(&self) {
        let disk = self.disk.as_ref().expect("it was started on a small disk");
        ballast::fill(&disk.root);
    }

    /// Gives the room back.
    ///
    /// # Panics
    /// When it was not filled.
    pub fn free_disk(&self) {
        let disk = self.disk.as_ref().expect("it was started on a small disk");
        ballast::free(&disk.root);
    }

    /// Kills it, as a power cut would end the process.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("the server is ours");
            child.wait().expect("the server is ours");
        }
    }

    /// Starts it again on the same port and store.
    pub fn resume(&mut self) {
        let log = std::fs::File::create(self.log()).expect("the folder is ours");
        let mut command = match &self.disk {
            None => Command::new(self.version.program()),
            Some(disk) => {
                let mut command = Command::new("nsenter");
                let keys = self.keys.as_ref().expect("a small disk is one of a server with keys").display();
                command.arg("--target").arg(disk.holder.id().to_string()).args(["--mount", &format!("--wdns={keys}")]);
                command.arg("--").arg(self.version.program());
                command
            }
        };
        match &self.keys {
            // The paths in that file are seen from the folder that the server is started in.
            Some(keys) => command.current_dir(keys).args(["--config", "server.conf"]),
            None => command
                .args(["--addr", "127.0.0.1", "--port", &self.port.to_string(), "--jetstream", "--store_dir"])
                .arg(self.folder.path().join("store")),
        };
        if let Some(Member { name, routes, port }) = &self.member {
            let listen = format!("nats://127.0.0.1:{port}");
            command.args(["--name", name, "--cluster_name", "test", "--cluster", &listen, "--routes", routes]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("nats-server starts");
        self.child = Some(child);
        let deadline = Instant::now() + Duration::from_secs(15);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(
                Instant::now() < deadline,
                "nats-server does not listen: {:?}",
                std::fs::read_to_string(self.log())
            );
            std::thread::yield_now();
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}
