//! The database has one form, however it came to it.

use std::path::Path;

use holdfast_model::ids::AuthorityId;
use holdfast_store::testing::{OWNER, TEST_AUTHORITY, TestPostgres};
use holdfast_store::{Error, Store};
use uuid::Uuid;

/// The form of a database without what differs between servers and runs.
fn form(server: &TestPostgres) -> String {
    let is_noise = |line: &&str| {
        line.is_empty() || line.starts_with("--") || line.starts_with("SET ") || line.starts_with("SELECT pg_catalog")
            // Newer servers fence their dumps with random words.
            || line.starts_with("\\restrict") || line.starts_with("\\unrestrict")
    };
    let dump = server.dump_schema();
    let lines: Vec<_> = dump.lines().filter(|line| !is_noise(line)).collect();
    lines.join("\n") + "\n"
}

#[tokio::test]
async fn the_sum_of_the_steps_is_the_written_whole() {
    let server = TestPostgres::start_migrated().await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/sql/schema.sql");
    let header = "-- The whole form of the database: what the steps in migrations/ add up to.\n\
                  -- Kept true by services/store/tests/migrations.rs, which rewrites it with HOLDFAST_BLESS=1.\n";
    let wanted = format!("{header}{}", form(&server));
    if std::env::var_os("HOLDFAST_BLESS").is_some() {
        std::fs::write(&path, &wanted).expect("writes");
    }
    let found = std::fs::read_to_string(&path).expect("schema/sql/schema.sql");
    assert_eq!(found, wanted, "schema/sql/schema.sql is stale; HOLDFAST_BLESS=1 rewrites it");
}

#[tokio::test]
async fn every_step_may_be_taken_twice_and_a_second_migration_does_nothing() {
    let server = TestPostgres::start_migrated().await;
    let before = form(&server);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/sql/migrations");
    let mut steps: Vec<_> =
        std::fs::read_dir(folder).expect("the steps").map(|entry| entry.expect("an entry").path()).collect();
    steps.sort();
    for step in steps {
        server.sql(&std::fs::read_to_string(&step).expect("a step"));
    }
    assert_eq!(form(&server), before);
    let migrated = server.store(OWNER).migrate(TEST_AUTHORITY).await.expect("migrates");
    assert_eq!((migrated.steps, migrated.began), (0, false));
}

/// A table that is written anew is empty to whoever looks with an older view of the database, as a service does that began a look and waits for the lock:
/// tokens would be unknown, hosts not there.
#[tokio::test]
async fn f32_no_step_writes_a_table_anew() {
    let server = TestPostgres::start_empty();
    server.sql(
        "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$
         BEGIN RAISE EXCEPTION '% is written anew', pg_event_trigger_table_rewrite_oid()::regclass; END $$;
         CREATE EVENT TRIGGER refuse ON table_rewrite EXECUTE FUNCTION refuse()",
    );
    server.store(OWNER).migrate(TEST_AUTHORITY).await.expect("no step does");
    let would =
        std::panic::AssertUnwindSafe(|| server.sql("ALTER TABLE api_tokens ALTER COLUMN name TYPE varchar(300)"));
    assert!(std::panic::catch_unwind(would).is_err(), "one that does is refused");
}

#[tokio::test]
async fn two_that_migrate_at_once_take_each_step_once() {
    let server = TestPostgres::start_empty();
    let (a, b) = (server.store(OWNER), server.store(OWNER));
    assert!(matches!(a.check_migrated().await, Err(Error::Unmigrated { found: 0, .. })));
    let (a, b) = tokio::join!(a.migrate(TEST_AUTHORITY), b.migrate(TEST_AUTHORITY));
    let (a, b) = (a.expect("migrates"), b.expect("migrates"));
    assert_eq!(a.steps.min(b.steps), 0);
    assert!(a.began != b.began);
    server.store("holdfast_renderer").check_migrated().await.expect("migrated");
}

#[tokio::test]
async fn an_edited_step_is_refused() {
    let server = TestPostgres::start_migrated().await;
    server.sql("UPDATE migrations SET digest = decode('00', 'hex') WHERE number = 3");
    let store: Store = server.store(OWNER);
    assert!(matches!(store.migrate(TEST_AUTHORITY).await, Err(Error::ForeignMigration { number: 3 })));
    assert!(matches!(store.check_migrated().await, Err(Error::ForeignMigration { number: 3 })));
}

#[tokio::test]
async fn a_database_of_another_authority_is_refused_and_both_are_named() {
    let server = TestPostgres::start_migrated().await;
    let other = AuthorityId::new(Uuid::from_u128(99));
    let refused = server.store(OWNER).migrate(other).await;
    assert!(matches!(refused, Err(Error::ForeignAuthority { found: TEST_AUTHORITY, wanted }) if wanted == other));
}
