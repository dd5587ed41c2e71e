//! A gateway that alone lost its way to the database for longer than its lease: what it does meanwhile, and when it is back.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use super::agent::{DEADLINE, Identity, Line, Manner};
use super::stage::{Gateway, Stage};
use super::watch::Watch;

/// The longest pause between two tries to write, and some.
const TRIES: Duration = Duration::from_millis(5_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_whose_lease_lapsed_keeps_its_sessions_and_writes_nothing_before_it_has_claimed_again() {
    let mut stage = Stage::start().await;
    let way = stage.way("way");
    let (lease, url) = (("HOLDFAST_AGENTS_LEASE", "1s"), way.url());
    let cut = stage.gateway("gateway-1", &[lease, ("HOLDFAST_AGENTS_DATABASE_URL", &url)]);
    let application =
        stage.postgres.sql("SELECT DISTINCT application_name FROM pg_stat_activity WHERE usename LIKE '%agents'");
    let other = stage.gateway("gateway-2", &[lease]);
    let hosts = stage.enrol("web", 3).await;
    let names: Vec<String> = hosts.iter().map(|who| who.name.clone()).collect();
    let watch = Watch::start(&stage.api);
    let mut lines = dial_all(&hosts, [&cut, &cut, &other]).await;
    watch.until_all(&names, "converged").await;
    let [first, second, elsewhere] = lines.as_mut_slice() else { panic!("three hosts") };
    let epochs = [first.epoch, second.epoch, elsewhere.epoch];

    // Two are given something to apply, and say that they did: one while the lease still holds, one when it has lapsed.
    (first.hold, second.hold) = (true, true);
    stage.render(&hosts[..2], 600).await;
    stage.hint(&hosts[..2]).await;
    for line in [&mut *first, &mut *second] {
        line.until("is to apply", |line| line.held() == 1).await;
    }
    watch.forget();
    way.cut(&stage, application.trim()).await;
    first.release();
    first.step().await;
    until_lapsed(&cut).await;
    second.release();
    second.step().await;
    watch.until_all(&names[..2], "unknown").await;

    // It reaches the database again, and somebody keeps it from claiming.
    let config = stage.postgres.config("postgres");
    let options = PgConnectOptions::new().host(&config.host).username("postgres").database(&config.database);
    let mut lock: PgConnection = options.connect().await.expect("connects");
    let row = format!("BEGIN; SELECT FROM leases WHERE '{}' LIKE '% ' || name FOR UPDATE", application.trim());
    sqlx::raw_sql(sqlx::AssertSqlSafe(row)).execute(&mut lock).await.expect("locks");
    let written = written(&hosts[..2]);
    let before = stage.postgres.sql(&written);
    let last = stage.postgres.sql("SELECT max(lid) FROM events").trim().to_owned();
    way.open();
    let claims = format!(
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = '{}'",
        application.trim()
    );
    stage.sql_until(&claims, "t").await;
    let tries = async { tokio::time::sleep(TRIES).await };
    tokio::select! {
        () = tries => {}
        () = first.until("its session ends", |line| line.ended.is_some()) => panic!("{:?}", first.ended),
        () = second.until("its session ends", |line| line.ended.is_some()) => panic!("{:?}", second.ended),
    }
    assert_eq!(stage.postgres.sql(&written), before, "nothing is written without the lease");
    sqlx::raw_sql("ROLLBACK").execute(&mut lock).await.expect("unlocks");
    lock.close().await.expect("closes");

    // The lease first, then what waited.
    stage.sql_until("SELECT count(*) FROM observed WHERE applied_version = 2", "2").await;
    let first_after = format!("SELECT kind FROM events WHERE lid > {last} ORDER BY lid LIMIT 1");
    assert_eq!(stage.postgres.sql(&first_after).trim(), "lease.acquired");
    watch.until_all(&names, "converged").await;
    // Sessions are the same connections, with the same tip.
    stage.render(&hosts[..2], 601).await;
    stage.hint(&hosts[..2]).await;
    for line in [&mut *first, &mut *second] {
        line.until("has what came after", |line| line.policies.len() == 3).await;
        assert_eq!(line.policies.last().map(|came| (came.form, came.stamp.version.raw())), Some(("delta", 3)));
    }
    assert_eq!([first.epoch, second.epoch, elsewhere.epoch], epochs);
    watch.until_all(&names, "converged").await;
    were_away_once(&watch, &names);
}

/// The hosts of the gateway that was cut off, and never the third one.
fn were_away_once(watch: &Watch, names: &[String]) {
    for (name, times) in names.iter().zip([1, 1, 0]) {
        let states = watch.states(name);
        assert_eq!(states.iter().filter(|state| *state == "unknown").count(), times, "{name}: {states:?}");
    }
}

async fn dial_all(hosts: &[Identity], gateways: [&Gateway; 3]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (who, gateway) in hosts.iter().zip(gateways) {
        let mut line = Line::dial(who, gateway.address, Manner::default()).await.expect("it listens");
        line.until("has its first states", |line| line.taken == 4).await;
        lines.push(line);
    }
    lines
}

/// What the gateway of these hosts says of them in the database, and how many events there are.
fn written(hosts: &[Identity]) -> String {
    let ids: Vec<String> = hosts.iter().map(|who| format!("'{}'", who.host.uuid())).collect();
    let of = |table: &str, order: &str| {
        format!("(SELECT json_agg(t ORDER BY {order}) FROM {table} t WHERE host_id IN ({}))", ids.join(", "))
    };
    let tables = [of("observed", "host_id, component"), of("sessions", "host_id"), of("presence", "host_id")];
    format!("SELECT {}, (SELECT count(*) FROM events)", tables.join(", "))
}

async fn until_lapsed(gateway: &Gateway) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while gateway.metric("holdfast_gateway_lease_lapses_total").await < 1.0 {
        assert!(tokio::time::Instant::now() < deadline, "its lease does not lapse");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // By its own clock too, whatever it was told.
    tokio::time::sleep(Duration::from_secs(1)).await;
}
