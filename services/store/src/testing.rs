//! A Postgres of its own for a test: a cluster in a temporary folder, reached by a local socket only, gone with the value that holds it.
//!
//! - Postgres refuses to run as root: where the tests do, it runs as the user `postgres` of the machine.
//! - It is told to stop when its starter dies, however it dies: no server is left behind.
//! - It may have standbys in the same folder, one of which takes its address over ([`standby`]).
//! - It is fast, not durable (`fsync` off); a test of durability starts its own.

mod standby;

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use holdfast_model::ids::AuthorityId;
use tempfile::TempDir;
use uuid::Uuid;

use crate::config::{StoreConfig, Tls};
use crate::pool::Store;

/// The database that a test gets.
const DATABASE: &str = "holdfast";
/// The role that owns it.
pub const OWNER: &str = "holdfast_owner";
/// The authority whose lineage a test's database has.
pub const TEST_AUTHORITY: AuthorityId = AuthorityId::new(Uuid::from_u128(0x0001_90f5_7e57_7e57_8e57_0123_4567_89ab));

/// Where Debian and others put the programs of the server, newest first, 15 before the rest: what the project is built against.
const PROGRAM_FOLDERS: [&str; 4] =
    ["/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/16/bin", "/usr/local/bin"];

/// A running server with one migrated database.
#[derive(Debug)]
pub struct TestPostgres {
    folder: Arc<TempDir>,
    /// Its data, in that folder.
    data: String,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    server: Option<std::thread::JoinHandle<()>>,
    settings: Vec<String>,
    /// Where it listens.
    port: u16,
    /// Where others are told to find it.
    address: u16,
}

impl TestPostgres {
    /// Starts a server with an empty database and the owner's role.
    ///
    /// # Panics
    /// If a program is missing or fails: a test without its database has failed.
    #[must_use]
    pub fn start_empty() -> Self {
        let exists = |folder: &&str| Path::new(folder).join("initdb").exists();
        let programs = PROGRAM_FOLDERS.iter().copied().find(exists).expect("Postgres is installed").into();
        let folder = tempfile::Builder::new().prefix("holdfast-pg-").tempdir().expect("a temporary folder");
        let folder = Arc::new(folder);
        let is_root = folder.path().metadata().expect("the folder").uid() == 0;
        let user = is_root.then(|| user_of("postgres"));
        if let Some((uid, gid)) = user {
            chown(folder.path(), Some(uid), Some(gid)).expect("root may give a folder away");
        }
        let (data, port) = ("data".to_owned(), 5432);
        let mut server = Self { folder, data, programs, user, server: None, settings: Vec::new(), port, address: port };
        let data = server.data();
        server.run("initdb", &["-D", &data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        server.start();
        server.psql("postgres", &format!("CREATE ROLE {OWNER} LOGIN CREATEROLE"));
        server.psql("postgres", &format!("CREATE DATABASE {DATABASE} OWNER {OWNER}"));
        server.psql(DATABASE, &format!("ALTER SCHEMA public OWNER TO {OWNER}"));
        server
    }

    /// Starts the server again with its changes synced to the disk, as a measurement needs it.
    ///
    /// # Panics
    /// As [`TestPostgres::start`].
    pub fn restart_durable(&mut self) {
        self.stop();
        self.settings = vec!["fsync=on".to_owned(), "full_page_writes=on".to_owned()];
        self.start();
    }

    /// Starts a server with a migrated database.
    ///
    /// # Panics
    /// As [`TestPostgres::start_empty`].
    pub async fn start_migrated() -> Self {
        let server = Self::start_empty();
        server.store(OWNER).migrate(TEST_AUTHORITY).await.expect("migrates");
        server
    }

    /// How a role reaches the database.
    #[must_use]
    pub fn config(&self, role: &str) -> StoreConfig {
        StoreConfig {
            host: self.socket(),
            port: self.address,
            database: DATABASE.to_owned(),
            user: role.to_owned(),
            password: None,
            tls: Tls::Off,
            connections_max: 8,
            application_name: "holdfast-test".to_owned(),
        }
    }

    /// The database as a role sees it.
    #[must_use]
    pub fn store(&self, role: &str) -> Store {
        Store::connect_lazily(&self.config(role))
    }

    /// Runs a statement as the server's superuser and returns what it prints, unaligned and without headers.
    ///
    /// # Panics
    /// If the statement fails.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let (socket, port) = (self.socket(), self.port.to_string());
        self.run(
            "psql",
            &[
                "-h",
                &socket,
                "-p",
                &port,
                "-U",
                "postgres",
                "-d",
                database,
                "-qAtX",
                "-v",
                "ON_ERROR_STOP=1",
                "-c",
                sql,
            ],
        )
    }

    /// Runs a statement in the test's database as the server's superuser.
    ///
    /// # Panics
    /// If the statement fails.
    pub fn sql(&self, sql: &str) -> String {
        self.psql(DATABASE, sql)
    }

    /// Begins a transaction that runs a statement, such as one that takes locks, and stays open until the answer is dropped; nothing of it is kept.
    ///
    /// # Panics
    /// If the program or the statement fails.
    #[must_use]
    pub fn hold(&self, sql: &str) -> Held {
        const WORD: &str = "held";
        let (socket, port) = (self.socket(), self.port.to_string());
        let mut command = self.command("psql");
        command.args(["-h", &socket, "-p", &port, "-U", "postgres", "-d", DATABASE, "-qAtX", "-v", "ON_ERROR_STOP=1"]);
        let mut session = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("psql runs");
        let mut input = session.stdin.take().expect("it is piped");
        writeln!(input, "BEGIN; {sql}; SELECT '{WORD}';").expect("psql takes it");
        let said = BufReader::new(session.stdout.take().expect("it is piped")).lines().find(|line| match line {
            Ok(line) => line == WORD,
            Err(_) => false,
        });
        assert!(said.is_some(), "psql ended before it held anything: {sql}");
        Held { session, input: Some(input) }
    }

    /// The form of the test's database, as the server writes it.
    ///
    /// # Panics
    /// If the program fails.
    #[must_use]
    pub fn dump_schema(&self) -> String {
        let (socket, port) = (self.socket(), self.port.to_string());
        self.run(
            "pg_dump",
            &["-h", &socket, "-p", &port, "-U", "postgres", "-d", DATABASE, "--schema-only", "--no-owner"],
        )
    }

    /// Stops the server at once, as a crash would.
    pub fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            let data = self.data();
            // Whether it was running is told by the thread's end; there is nothing to learn from how the stop went.
            drop(self.command("pg_ctl").args(["-D", &data, "-m", "immediate", "-W", "stop"]).output());
            drop(server.join());
        }
    }

    /// Starts the server again after [`TestPostgres::stop`].
    ///
    /// # Panics
    /// If it does not take connections within 30 seconds.
    pub fn start(&mut self) {
        let (data, socket) = (self.data(), self.socket());
        let mut command = Command::new("setpriv");
        if let Some((uid, gid)) = self.user {
            command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]);
        }
        command.args(["--pdeathsig", "QUIT"]).arg(self.programs.join("postgres")).args(["-D", &data, "-k", &socket]);
        for setting in [
            "listen_addresses=",
            "fsync=off",
            "full_page_writes=off",
            "max_connections=100",
            "shared_buffers=64MB",
            "logging_collector=off",
        ] {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let log = std::fs::File::create(self.log_file()).expect("a log file");
        command.current_dir(self.folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let (started, is_started) = sync_channel(1);
        // The kernel tells a child of the death of the thread that started it, so that thread lives as long as the child.
        self.server = Some(std::thread::spawn(move || {
            let child = command.spawn();
            started.send(child.is_ok()).expect("the starter waits");
            if let Ok(mut child) = child {
                drop(child.wait());
            }
        }));
        assert!(is_started.recv().expect("the thread answers"), "setpriv is installed");
        let deadline = Instant::now() + Duration::from_secs(30);
        let port = self.port.to_string();
        while !self
            .command("pg_isready")
            .args(["-q", "-h", &socket, "-p", &port])
            .status()
            .expect("pg_isready")
            .success()
        {
            assert!(Instant::now() < deadline, "the server does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts the server anew, so that it listens on loopback for those who have a certificate of the CA that names their role. Says on which port.
    ///
    /// # Panics
    /// If a file cannot be written or the server does not start.
    pub fn restart_with_tls(&mut self, ca_pem: &str, chain_pem: &str, key_pem: &str) -> u16 {
        self.stop();
        for (name, text) in [("ca.pem", ca_pem), ("server.pem", chain_pem), ("server.key", key_pem)] {
            self.write_private(name, text);
        }
        self.write_private("data/pg_hba.conf", "local all all trust\nhostssl all all 127.0.0.1/32 cert\n");
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let path = |name: &str| self.folder.path().join(name).to_string_lossy().into_owned();
        self.settings = vec![
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={port}"),
            "ssl=on".to_owned(),
            format!("ssl_ca_file={}", path("ca.pem")),
            format!("ssl_cert_file={}", path("server.pem")),
            format!("ssl_key_file={}", path("server.key")),
        ];
        (self.port, self.address) = (port, port);
        self.start();
        port
    }

    /// A file that only the server's user reads.
    fn write_private(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a file of our own");
        if let Some((uid, gid)) = self.user {
            chown(&path, Some(uid), Some(gid)).expect("root may give a file away");
        }
    }

    /// What the server wrote.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join(format!("log-{}", self.data))
    }

    fn data(&self) -> String {
        self.folder.path().join(&self.data).to_string_lossy().into_owned()
    }

    fn socket(&self) -> String {
        self.folder.path().to_string_lossy().into_owned()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = match self.user {
            Some((uid, gid)) => {
                let mut command = Command::new("setpriv");
                command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]);
                command.arg(self.programs.join(program));
                command
            }
            None => Command::new(self.programs.join(program)),
        };
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().expect("the program runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {errors}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

/// An open transaction of [`TestPostgres::hold`].
#[derive(Debug)]
pub struct Held {
    session: Child,
    input: Option<ChildStdin>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // psql ends with its input, and the transaction with it.
        drop(self.input.take());
        drop(self.session.wait());
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The numbers of a user of this machine and of its group.
fn user_of(name: &str) -> (u32, u32) {
    let mut users = String::new();
    std::fs::File::open("/etc/passwd").and_then(|mut file| file.read_to_string(&mut users)).expect("a user list");
    let line = users.lines().find(|line| line.split(':').next() == Some(name)).expect("the user exists");
    let mut numbers = line.split(':').skip(2).map(|field| field.parse().expect("a number"));
    (numbers.next().expect("a user"), numbers.next().expect("a group"))
}
