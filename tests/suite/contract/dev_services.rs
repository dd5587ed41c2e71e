//! The servers that `ops/dev-services` starts.

use std::path::Path;

use async_nats::ConnectOptions;
use holdfast_suite::services::Services;
use sqlx::{Connection as _, PgConnection, Row as _};

#[tokio::test]
async fn both_servers_speak_tls_and_refuse_plain_text() {
    let services = Services::start();

    let mut database = PgConnection::connect(services.database_url()).await.expect("by TLS");
    let row = sqlx::query(
        "select ssl, version, current_setting('listen_addresses') from pg_stat_ssl where pid = pg_backend_pid()",
    );
    let row = row.fetch_one(&mut database).await.expect("one row");
    assert_eq!((row.get::<bool, _>(0), row.get::<&str, _>(1), row.get::<&str, _>(2)), (true, "TLSv1.3", "127.0.0.1"));
    let plain = services.database_url().replace("sslmode=verify-full", "sslmode=disable");
    let refused = PgConnection::connect(&plain).await.expect_err("plain text");
    assert!(refused.to_string().contains("no encryption"), "{refused}");

    let nats = mk_nats(&services).await;
    let context = async_nats::jetstream::new(nats);
    context.query_account().await.expect("JetStream is on");
    let stranger = ConnectOptions::new().add_root_certificates(services.ca());
    assert!(stranger.connect(services.nats_url()).await.is_err(), "without a password");
}

#[tokio::test]
async fn a_second_start_changes_nothing_and_data_outlives_a_stop() {
    let mut services = Services::start();
    let first = services.values().clone();
    run_sql(&services, "create table kept as select pg_postmaster_start_time() as at").await;

    services.resume();
    assert_eq!(services.values(), &first);
    assert!(is_true(&services, "select at = pg_postmaster_start_time() from kept").await, "it was started again");

    services.stop();
    PgConnection::connect(services.database_url()).await.expect_err("it is stopped");
    services.resume();
    assert_eq!(services.values(), &first);
    assert!(is_true(&services, "select at < pg_postmaster_start_time() from kept").await);
    mk_nats(&services).await;
}

#[tokio::test]
async fn the_database_server_has_no_rights_of_root_and_wiping_leaves_nothing() {
    let services = Services::start();
    let nats_folder = services.value("HOLDFAST_NATS_FOLDER").to_owned();
    let postgres_folder = services.value("HOLDFAST_POSTGRES_FOLDER").to_owned();
    let nats = processes_naming(&nats_folder);
    let postgres = processes_naming(&postgres_folder);
    assert_eq!((nats.len(), postgres.len()), (1, 1), "{nats:?} {postgres:?}");
    assert_ne!(uid_of(postgres[0]), "0");

    services.wipe();
    assert_eq!((processes_naming(&nats_folder), processes_naming(&postgres_folder)), (vec![], vec![]));
    assert!(!Path::new(&nats_folder).exists() && !Path::new(&postgres_folder).exists());
    let left: Vec<_> = std::fs::read_dir(services.folder()).expect("it is ours").collect();
    assert!(left.is_empty(), "{left:?}");
}

async fn mk_nats(services: &Services) -> async_nats::Client {
    let (user, password) = services.nats_login();
    let options = ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned());
    options.add_root_certificates(services.ca()).connect(services.nats_url()).await.expect("by TLS")
}

async fn run_sql(services: &Services, statement: &'static str) {
    let mut database = PgConnection::connect(services.database_url()).await.expect("it runs");
    sqlx::query(statement).execute(&mut database).await.expect("it is right");
}

async fn is_true(services: &Services, question: &'static str) -> bool {
    let mut database = PgConnection::connect(services.database_url()).await.expect("it runs");
    sqlx::query_scalar(question).fetch_one(&mut database).await.expect("one row")
}

/// Processes with this text among their arguments.
fn processes_naming(text: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").expect("this is Linux").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(text))
        })
        .collect()
}

fn uid_of(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("every process has one");
    line.split_whitespace().next().unwrap_or_default().to_owned()
}
