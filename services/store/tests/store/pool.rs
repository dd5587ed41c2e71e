//! Connections: what a cancelled caller, a dead server and a silent server leave behind.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use holdfast_identity::{Ca, ServerRole};
use holdfast_store::testing::TEST_AUTHORITY;
use holdfast_store::{Error, Retry, Store, StoreConfig};
use time::OffsetDateTime;

use crate::common::{Fleet, mk_change, mk_namespace};

#[tokio::test]
async fn a_caller_that_goes_away_leaves_no_transaction_open_and_its_change_whole() {
    let fleet = Fleet::start().await;
    for n in 0..150_u64 {
        let change = mk_change(vec![mk_namespace(&format!("n{n}"), "x"), mk_namespace(&format!("m{n}"), "x")]);
        // Cut at every depth from before the first byte to after the answer.
        drop(tokio::time::timeout(Duration::from_micros(n * 40), fleet.operators.apply_intent(change)).await);
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' OR \
                (state = 'active' AND usename = 'holdfast_gateway_operators')";
    while fleet.server.sql(open) != "0\n" {
        assert!(Instant::now() < deadline, "a transaction is left open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (revision, intent) = fleet.operators.load_intent(None).await.expect("loads");
    let halves = intent.objects.len();
    assert_eq!(u64::try_from(halves).expect("few"), revision.raw() * 2, "each change is there whole or not at all");
}

#[tokio::test]
async fn a_crashed_server_is_found_and_the_pool_recovers_without_a_restart() {
    let mut fleet = Fleet::start().await;
    fleet.put(vec![mk_namespace("a", "x")]).await;
    fleet.server.stop();
    let error = fleet.operators.latest_revision().await.expect_err("nobody answers");
    assert!(matches!(error.retry(), Retry::After(_)), "{error:?}");
    fleet.server.start();
    let revision = fleet.operators.latest_revision().await.expect("answers again");
    assert_eq!(revision.raw(), 1);
}

#[tokio::test]
async fn connections_that_the_server_ended_are_replaced_unseen() {
    let fleet = Fleet::start().await;
    for _ in 0..3 {
        fleet.operators.latest_revision().await.expect("answers");
        fleet.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE 'holdfast%'");
        fleet.put(vec![mk_namespace("a", "x")]).await;
    }
}

#[tokio::test]
async fn a_disk_without_room_refuses_changes_whole_and_takes_them_once_there_is_room() {
    let disk = SmallDisk::mount();
    let fleet = Fleet::start().await;
    fleet.server.sql(&format!("CREATE TABLESPACE small LOCATION '{}'", disk.folder.path().display()));
    fleet.server.sql("ALTER TABLE events SET TABLESPACE small");
    fleet.put(vec![mk_namespace("a", "x")]).await;
    let ballast = disk.fill();
    let change = |n: u32| mk_change((0..40).map(|m| mk_namespace(&format!("n{n}-{m}"), "x")).collect());
    let mut taken = 0;
    let error = loop {
        match fleet.operators.apply_intent(change(taken)).await {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 100, "there is room without end");
    };
    assert!(matches!(error, Error::Exhausted { .. }) && matches!(error.retry(), Retry::After(_)), "{error:?}");
    let (revision, intent) = fleet.operators.load_intent(None).await.expect("what is there can be read");
    assert_eq!(revision.raw(), u64::from(taken) + 1, "nothing of what was refused is there");
    assert_eq!(intent.objects.len(), usize::try_from(taken).expect("few") * 40 + 1);
    std::fs::remove_file(&ballast).expect("it is ours");
    fleet.operators.apply_intent(change(taken)).await.expect("takes it without anybody's help");
}

/// A file system of 4 MiB that belongs to the server's user; gone with the value, which must outlive the server.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Self {
        let folder = tempfile::Builder::new().prefix("holdfast-disk-").tempdir().expect("a folder");
        run("mount", &["-t", "tmpfs", "-o", "size=4m,mode=0700", "none", &folder.path().display().to_string()]);
        run("chown", &["postgres", &folder.path().display().to_string()]);
        Self { folder }
    }

    /// Takes all the room that is left.
    fn fill(&self) -> PathBuf {
        use std::io::Write as _;
        let ballast = self.folder.path().join("ballast");
        let mut file = std::fs::File::create(&ballast).expect("the disk is ours");
        while file.write_all(&[0; 4_096]).is_ok() {}
        ballast
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &[&self.folder.path().display().to_string()]);
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = std::process::Command::new(program).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_statement_that_waits_for_a_lock_gives_up_and_says_so() {
    let fleet = Fleet::start().await;
    let config = fleet.server.config("postgres");
    let holder = std::thread::spawn(move || {
        std::process::Command::new("psql")
            .args(["-h", &config.host, "-U", "postgres", "-d", "holdfast", "-qAtX", "-c"])
            .arg("BEGIN; LOCK TABLE authority IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(30)")
            .output()
    });
    let deadline = Instant::now() + Duration::from_secs(10);
    let locked =
        "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND relation = 'authority'::regclass";
    while fleet.server.sql(locked) == "0\n" {
        assert!(Instant::now() < deadline, "the lock is not taken");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let error = fleet.operators.load_authority().await.expect_err("waits in vain");
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    fleet.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)%' AND pid <> pg_backend_pid()");
    holder.join().expect("the holder").expect("psql runs");
    fleet.operators.load_authority().await.expect("answers");
}

#[tokio::test]
async fn a_silent_server_process_is_given_up_and_replaced() {
    let fleet = Fleet::start().await;
    // By a statement alone, and by a transaction.
    let (took, answer) = ask_a_silent_server(&fleet, fleet.operators.latest_revision()).await;
    answer.expect("another connection answers");
    assert!((Duration::from_secs(4)..Duration::from_secs(30)).contains(&took), "{took:?}");
    let (took, answer) = ask_a_silent_server(&fleet, fleet.operators.list_api_tokens()).await;
    answer.expect("another connection answers");
    assert!((Duration::from_secs(4)..Duration::from_secs(30)).contains(&took), "{took:?}");
}

/// Asks while the server's side of each connection is silent, and says how long it took.
async fn ask_a_silent_server<T>(
    fleet: &Fleet,
    question: impl Future<Output = Result<T, Error>>,
) -> (Duration, Result<T, Error>) {
    fleet.operators.latest_revision().await.expect("answers");
    // The driver takes the connection back in a task of its own.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let pids = fleet.server.sql("SELECT pid FROM pg_stat_activity WHERE usename = 'holdfast_gateway_operators'");
    let pids: Vec<&str> = pids.lines().collect();
    assert!(!pids.is_empty());
    // A stopped process keeps its socket open and says nothing, as a host that lost its power does.
    let signal = |name: &str| {
        let status = std::process::Command::new("kill").arg(name).args(&pids).status().expect("kill runs");
        assert!(status.success());
    };
    signal("-STOP");
    let started = Instant::now();
    let answer = question.await;
    let took = started.elapsed();
    signal("-CONT");
    (took, answer)
}

#[tokio::test]
async fn a_statement_whose_plan_a_migration_outdated_works_at_the_next_try() {
    let fleet = Fleet::start().await;
    fleet.operators.list_api_tokens().await.expect("lists");
    fleet.server.sql("ALTER TABLE api_tokens ALTER COLUMN name TYPE varchar");
    fleet.operators.list_api_tokens().await.expect("lists");
}

#[tokio::test]
async fn a_role_gets_in_with_its_own_certificate_only_and_knows_its_server() {
    let mut fleet = Fleet::start().await;
    let now = OffsetDateTime::now_utc();
    let ca = Ca::create(TEST_AUTHORITY, now).expect("a CA");
    let names = ["localhost".try_into().expect("a name")];
    let server = ca.issue_server(ServerRole::Postgres, &names, now).expect("issues");
    let port = fleet.server.restart_with_tls(&ca.certificate_pem(), &server.chain_pem(), &server.key_pem());

    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let role = "holdfast_renderer";
    std::fs::write(at("ca.pem"), ca.certificate_pem()).expect("writes");
    ca.issue_client(role, now).expect("issues").save(folder.path(), "mine").expect("writes");
    let other = Ca::create(TEST_AUTHORITY, now).expect("a CA");
    std::fs::write(at("other.pem"), other.certificate_pem()).expect("writes");
    other.issue_client(role, now).expect("issues").save(folder.path(), "foreign").expect("writes");

    let connect = async |user: &str, host: &str, ca: &str, credential: Option<&str>| {
        let (cert, key) =
            credential.map(|name| (at(&format!("{name}.pem")), at(&format!("{name}.key.pem")))).unwrap_or_default();
        let client = format!("&sslcert={}&sslkey={}", cert.display(), key.display());
        let client = if credential.is_some() { client } else { String::new() };
        let root = at(ca);
        let url = format!("postgres://{user}@{host}:{port}/holdfast?sslrootcert={}{client}", root.display());
        let config = StoreConfig::from_url(&url, "test").expect("reads");
        Store::connect(&config).await.map(|_| ())
    };
    connect(role, "localhost", "ca.pem", Some("mine")).await.expect("lets it in");
    assert!(connect(role, "localhost", "ca.pem", None).await.is_err(), "no certificate");
    assert!(connect("holdfast_owner", "localhost", "ca.pem", Some("mine")).await.is_err(), "another role's");
    assert!(connect(role, "localhost", "ca.pem", Some("foreign")).await.is_err(), "another CA's");
    assert!(connect(role, "localhost", "other.pem", Some("mine")).await.is_err(), "a server of another CA");
    assert!(connect(role, "127.0.0.1", "ca.pem", Some("mine")).await.is_err(), "a server of another name");
}
