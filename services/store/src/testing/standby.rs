//! Standbys of a test's server: made from it, promoted, and put in its place at the address that everybody knows.
//!
//! - The address is a file of the folder that all of them share; who takes it over replaces it by a link to its own.
//! - A server that lost its address keeps its data and can be started again where nobody is sent to.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{DATABASE, TestPostgres};

/// How long a server may take until it follows, or leads.
const FOLLOWS_TIMEOUT: Duration = Duration::from_secs(30);

/// The name of the file at which a server listens.
fn socket_of(port: u16) -> String {
    format!(".s.PGSQL.{port}")
}

impl TestPostgres {
    /// Starts a server that follows this one, at a port of its own, once it has all that is there.
    ///
    /// # Panics
    /// If a program fails, or it does not follow in time.
    #[must_use]
    pub fn standby(&self, port: u16) -> Self {
        let (data, socket, of) = (format!("data-{port}"), self.socket(), self.port.to_string());
        let folder = self.folder.path().join(&data).display().to_string();
        self.run(
            "pg_basebackup",
            &["-D", &folder, "-h", &socket, "-p", &of, "-U", "postgres", "-X", "stream", "-c", "fast", "--no-sync"],
        );
        self.own("standby.signal", &data);
        let mut standby = Self {
            folder: Arc::clone(&self.folder),
            data,
            programs: self.programs.clone(),
            user: self.user,
            server: None,
            settings: vec![
                format!("port={port}"),
                format!("primary_conninfo=host={socket} port={of} user=postgres application_name=standby-{port}"),
                "wal_retrieve_retry_interval=200ms".to_owned(),
            ],
            port,
            address: port,
        };
        standby.start();
        self.is_followed();
        standby
    }

    /// Commits wait from now on until a standby has them.
    ///
    /// # Panics
    /// If the server refuses, or nobody follows.
    pub fn wait_for_standbys(&self) {
        self.is_followed();
        self.alter("synchronous_standby_names = '*'");
        let deadline = Instant::now() + FOLLOWS_TIMEOUT;
        while self.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'").trim() != "1" {
            assert!(Instant::now() < deadline, "no standby is synchronous: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Takes nothing more from whom it follows.
    ///
    /// # Panics
    /// If the server refuses, or goes on.
    pub fn stop_following(&mut self) {
        self.sql("SELECT pg_wal_replay_pause()");
        let deadline = Instant::now() + FOLLOWS_TIMEOUT;
        while self.sql("SELECT pg_get_wal_replay_pause_state()").trim() != "paused" {
            assert!(Instant::now() < deadline, "it goes on: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        // Promoted as it is, it would take in what it has received.
        self.stop();
        self.settings.retain(|setting| !setting.starts_with("primary_conninfo"));
        self.start();
    }

    /// Makes a standby lead, for itself.
    ///
    /// # Panics
    /// If it does not.
    pub fn promote(&self) {
        // What it has of its primary's settings would have it wait for standbys of its own.
        self.alter("synchronous_standby_names = ''");
        assert_eq!(self.psql("postgres", "SELECT pg_promote()").trim(), "t", "{}", self.log());
    }

    /// Puts this server in the place of another one of its folder, which is told to others no more. What is connected to the other stays so.
    ///
    /// # Panics
    /// If the folder does not take it.
    pub fn take_address_of(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.address, &mut other.address);
        other.address = other.port;
        let at = |name: String| self.folder.path().join(name);
        if other.port == self.address {
            // It has the address for its own: it gets another one, now if it runs, and for its next start.
            other.port = 6_000;
            if other.server.is_some() {
                let (address, moved) = (at(socket_of(self.address)), at(socket_of(other.port)));
                std::fs::rename(address, moved).expect("it listens there");
            }
            other.address = other.port;
            other.settings.push(format!("port={}", other.port));
        }
        let (address, new) = (at(socket_of(self.address)), at("new-address".to_owned()));
        symlink(socket_of(self.port), &new).expect("the folder is ours");
        std::fs::rename(&new, &address).expect("the folder is ours");
    }

    /// Waits until some standby has all that is there now.
    fn is_followed(&self) {
        let deadline = Instant::now() + FOLLOWS_TIMEOUT;
        let follows =
            "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND replay_lsn >= pg_current_wal_lsn()";
        while self.psql("postgres", follows).trim() == "0" {
            assert!(Instant::now() < deadline, "nobody follows: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn alter(&self, setting: &str) {
        self.psql(DATABASE, &format!("ALTER SYSTEM SET {setting}"));
        self.psql(DATABASE, "SELECT pg_reload_conf()");
    }

    /// Makes an empty file of the server's user in a folder of data.
    fn own(&self, name: &str, data: &str) {
        let name: PathBuf = [data, name].iter().collect();
        self.write_private(name.to_str().expect("a plain name"), "");
    }
}
