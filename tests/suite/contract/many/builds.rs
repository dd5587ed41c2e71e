//! What becomes of a build that takes long while the world goes on: sessions begin anew and elsewhere, more is published, and it fails.
//!
//! - Gateways are real processes. Bodies are read by their role only while the test lets them: a row of `artifacts` has a policy for that role that waits.

use holdfast_session::agent::CloseCause;
use holdfast_wire::code::RefusalCode;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use super::agent::{Identity, Line, Live, Manner};
use super::stage::{Gateway, Stage};
use super::watch::Watch;

const SUPERSEDED: CloseCause = CloseCause::Theirs { code: RefusalCode::Superseded, retry_after_ms: 0 };
/// Nothing is found but by hints.
const BY_HINTS: [(&str, &str); 1] = [("HOLDFAST_AGENTS_COMPARE_INTERVAL", "1h")];
/// Publications while one build runs.
const PUBLISHED: u32 = 50;
/// More than are published for as single hosts.
const MANY: usize = 40;

/// Bodies that gateways for agents wait for.
struct Bodies {
    lock: PgConnection,
}

impl Bodies {
    /// Has whoever reads one for an agent wait from now on.
    async fn hold(stage: &Stage) -> Self {
        stage.postgres.sql(
            "CREATE TABLE trouble (fails boolean NOT NULL); INSERT INTO trouble VALUES (false);
             CREATE FUNCTION let_through() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = 0 AS $$
             BEGIN
                 PERFORM pg_advisory_lock_shared(28);
                 PERFORM pg_advisory_unlock_shared(28);
                 IF (SELECT fails FROM trouble) THEN RAISE EXCEPTION 'no body is read'; END IF;
                 RETURN true;
             END $$;
             CREATE POLICY agents ON artifacts FOR SELECT TO holdfast_gateway_agents USING (let_through());
             CREATE POLICY others ON artifacts TO holdfast_renderer, holdfast_gateway_operators, holdfast_reader
                 USING (true) WITH CHECK (true);
             ALTER TABLE artifacts ENABLE ROW LEVEL SECURITY",
        );
        let config = stage.postgres.config("postgres");
        let options = PgConnectOptions::new().host(&config.host).username("postgres").database(&config.database);
        let mut lock: PgConnection = options.connect().await.expect("connects");
        sqlx::raw_sql("SELECT pg_advisory_lock(28)").execute(&mut lock).await.expect("nobody else asks for it");
        Self { lock }
    }

    /// Waits until so many statements wait.
    async fn until_asked_for(&self, stage: &Stage, times: usize) {
        let asks = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'";
        stage.sql_until(&format!("SELECT ({asks}) >= {times}"), "t").await;
    }

    /// Has every statement that waits, and those that come, go on.
    async fn release(self) {
        self.lock.close().await.expect("closes");
    }

    /// Whether reads of bodies fail once they may go on.
    fn fail(stage: &Stage, fails: bool) {
        stage.postgres.sql(&format!("UPDATE trouble SET fails = {fails}"));
    }
}

/// A session that has its first states.
async fn dial(who: &Identity, gateway: &Gateway) -> Line {
    let mut line = Line::dial(who, gateway.address, Manner::default()).await.expect("it listens");
    line.until("gets its first states", |line| line.taken == 4).await;
    line
}

/// The forms and versions in which a policy came.
fn came(line: &Line) -> Vec<(&'static str, u64)> {
    line.policies.iter().map(|came| (came.form, came.stamp.version.raw())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c27_what_is_published_between_the_opening_of_a_session_and_its_first_state_comes_once_and_after_it() {
    let mut stage = Stage::start().await;
    let one = stage.gateway("gateway-1", &BY_HINTS);
    let hosts = stage.enrol("web", 1).await;
    stage.render(&hosts, 300).await;
    let bodies = Bodies::hold(&stage).await;
    let mut line = Line::dial(&hosts[0], one.address, Manner::default()).await.expect("it listens");
    line.until("is let in", |line| line.epoch.is_some()).await;
    // Its first state is read, as of the version before what comes now.
    bodies.until_asked_for(&stage, 1).await;
    stage.render(&hosts, 301).await;
    stage.hint(&hosts).await;
    let builds = "holdfast_gateway_builds_total";
    one.metric_until(builds, &["host", "coalesced"], 1.0).await;
    assert_eq!(line.taken, 0, "the first state waits still");

    bodies.release().await;
    line.until("has what came meanwhile", |line| came(line).last() == Some(&("delta", 3))).await;
    // What came twice or late would stand before this one.
    stage.render(&hosts, 302).await;
    stage.hint(&hosts).await;
    line.until("has what came after", |line| came(line).last() == Some(&("delta", 4))).await;
    assert_eq!(came(&line), [("snapshot", 2), ("delta", 3), ("delta", 4)]);
    assert_eq!(line.taken, 6, "four first states, and two of the policy");
    one.metric_until(builds, &["host", "built"], 2.0).await;
    assert_eq!(one.metric_with(builds, &["host", "started"]).await, 2.0, "one for each hint");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c28_a_session_that_begins_while_a_build_of_the_one_before_it_runs_gets_nothing_of_it_and_that_one_nothing_more()
 {
    let mut stage = Stage::start().await;
    let one = stage.gateway("gateway-1", &BY_HINTS);
    let hosts = stage.enrol("web", 1).await;
    let mut older = dial(&hosts[0], &one).await;
    stage.render(&hosts, 300).await;
    let bodies = Bodies::hold(&stage).await;
    stage.hint(&hosts).await;
    bodies.until_asked_for(&stage, 1).await;

    let mut newer = Line::dial(&hosts[0], one.address, Manner::default()).await.expect("it listens");
    newer.until("is let in", |line| line.epoch.is_some()).await;
    assert_eq!(older.closed().await, SUPERSEDED);
    assert_eq!(newer.taken, 0, "the build of its first states waits like the one before it");
    bodies.release().await;
    newer.until("has its first states", |line| line.taken == 4).await;
    stage.render(&hosts, 301).await;
    stage.hint(&hosts).await;
    newer.until("has what came after", |line| line.policies.len() == 2).await;
    assert_eq!(came(&newer), [("snapshot", 2), ("delta", 3)], "each once, by builds of its own");
    assert_eq!(came(&older), [("snapshot", 1)], "nothing more");
    let builds = "holdfast_gateway_builds_total";
    one.metric_until(builds, &["host", "built"], 1.0).await;
    let built = one.metric_with(builds, &["host", "built"]).await;
    assert_eq!(built, 1.0, "what was built for the older session was given to nobody");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c29_a_host_that_moves_to_another_gateway_while_a_body_is_read_for_it_gets_it_there_and_nothing_where_it_was() {
    let mut stage = Stage::start().await;
    let (one, two) = (stage.gateway("gateway-1", &BY_HINTS), stage.gateway("gateway-2", &BY_HINTS));
    let hosts = stage.enrol("web", 1).await;
    let watch = Watch::start(&stage.api);
    let mut older = dial(&hosts[0], &one).await;
    // It has said everything: a word of it that comes late would have its gateway told that the host moved.
    watch.until_all(&[hosts[0].name.clone()], "converged").await;
    stage.render(&hosts, 300).await;
    let bodies = Bodies::hold(&stage).await;
    stage.hint(&hosts).await;
    bodies.until_asked_for(&stage, 1).await;

    // The row that the first gateway read says that its own session is the newest, and is no longer true once it has the body.
    let mut newer = Line::dial(&hosts[0], two.address, Manner::default()).await.expect("it listens");
    newer.until("is let in", |line| line.epoch.is_some()).await;
    bodies.until_asked_for(&stage, 2).await;
    assert!(older.ended.is_none() && newer.taken == 0);
    bodies.release().await;
    assert_eq!(older.closed().await, SUPERSEDED);
    assert_eq!(came(&older), [("snapshot", 1)], "nothing more");
    // A sign of life of the older session may have had its gateway told before that body was there.
    assert!(one.metric("holdfast_gateway_moved_builds_total").await <= 1.0, "one build at most");
    newer.until("has its first states", |line| line.taken == 4).await;
    assert_eq!(came(&newer), [("snapshot", 2)]);
    watch.until_all(&[hosts[0].name.clone()], "converged").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c23_fifty_publications_while_a_build_runs_make_exactly_one_more() {
    let mut stage = Stage::start().await;
    let one = stage.gateway("gateway-1", &BY_HINTS);
    let hosts = stage.enrol("web", 1).await;
    let mut line = dial(&hosts[0], &one).await;
    stage.render(&hosts, 300).await;
    let bodies = Bodies::hold(&stage).await;
    stage.hint(&hosts).await;
    bodies.until_asked_for(&stage, 1).await;
    for n in 0..PUBLISHED {
        stage.render(&hosts, 301 + n).await;
        stage.hint(&hosts).await;
    }
    let builds = "holdfast_gateway_builds_total";
    one.metric_until(builds, &["host", "coalesced"], f64::from(PUBLISHED)).await;
    bodies.release().await;
    let last = u64::from(PUBLISHED) + 2;
    line.until("has the last", |line| line.policies.last().is_some_and(|came| came.stamp.version.raw() == last)).await;
    let versions: Vec<u64> = came(&line).iter().map(|(_, version)| *version).collect();
    assert_eq!(versions, [1, 2, last]);
    one.metric_until(builds, &["host", "built"], 2.0).await;
    for happening in ["started", "built"] {
        assert_eq!(one.metric_with(builds, &["host", happening]).await, 2.0, "{happening}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c37_a_build_that_fails_after_a_wide_change_went_by_comes_again_by_itself() {
    let mut stage = Stage::start().await;
    let one = stage.gateway("gateway-1", &BY_HINTS);
    let hosts = stage.enrol("web", MANY).await;
    let agents: Vec<Live> = (0_u64..)
        .zip(&hosts)
        .map(|(n, who)| {
            // A source has a number of handshakes of its own.
            let from = [127, 0, 1, u8::try_from(n % 8 + 1).expect("small")];
            Live::start(who, &[one.address], Manner { from, ..Manner::default() }, n)
        })
        .collect();
    for agent in &agents {
        agent.until("has its first states", |lived| lived.is_whole).await;
    }
    stage.render(&hosts, 300).await;
    let bodies = Bodies::hold(&stage).await;
    // One of them is being built for when the change of all comes, which has nothing to do for it.
    stage.hint(&hosts[..1]).await;
    bodies.until_asked_for(&stage, 1).await;
    stage.hint(&hosts).await;
    bodies.until_asked_for(&stage, 2).await;
    Bodies::fail(&stage, true);
    bodies.release().await;
    let builds = "holdfast_gateway_builds_total";
    one.metric_until(builds, &["host", "failed"], 1.0).await;
    one.metric_until(builds, &["bulk", "failed"], f64::from(u32::try_from(MANY - 1).expect("few"))).await;
    Bodies::fail(&stage, false);
    // Nobody says anything more.
    for agent in &agents {
        agent.until("has it", |lived| lived.policies.last().is_some_and(|came| came.stamp.version.raw() == 2)).await;
        let lived = agent.lived();
        assert_eq!((lived.opened.len(), lived.policies.len()), (1, 2), "{}: {:?}", agent.who.name, lived.policies);
    }
}
