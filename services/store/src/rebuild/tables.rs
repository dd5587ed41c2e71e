//! The tables that are compared, and what is not.

/// A table that is compared.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    /// What names a row.
    pub(super) key: &'static [&'static str],
    /// Columns that no event explains.
    pub(super) outside: &'static [&'static str],
    pub(super) create: &'static str,
    pub(super) fill: &'static str,
    pub(super) count: &'static str,
    pub(super) compare: &'static str,
}

macro_rules! tables {
    ($($name:literal ($($key:literal),+) outside [$($outside:literal),*];)+) => {
        /// Every table that is compared.
        pub(super) const TABLES: &[Table] = &[$(Table {
            name: $name,
            key: &[$($key),+],
            outside: &[$($outside),*],
            create: concat!(
                "CREATE TEMPORARY TABLE fold_", $name, " (LIKE ", $name, ") ON COMMIT DROP"
            ),
            fill: concat!(
                "INSERT INTO fold_", $name, " SELECT * FROM jsonb_populate_recordset(NULL::", $name, ", $1)"
            ),
            count: concat!("SELECT count(*) FROM ", $name),
            compare: concat!(
                "SELECT to_jsonb(e), to_jsonb(f) FROM fold_", $name, " e FULL JOIN ", $name, " f ON TRUE",
                $(" AND e.", $key, " = f.", $key,)+
                " WHERE to_jsonb(e) - $1::text[] IS DISTINCT FROM to_jsonb(f) - $1::text[] LIMIT 1000"
            ),
        },)+];
    };
}

tables! {
    "api_tokens" ("token_id") outside [];
    "authority" ("only_row") outside [];
    "certificates" ("serial") outside [];
    "desired_latest" ("host_id", "component") outside [];
    "desired_states" ("host_id", "component", "version") outside [];
    "drifts" ("host_id", "kind") outside [];
    "enrol_tokens" ("token_id") outside [];
    "host_facts" ("host_id", "from_revision") outside [];
    "hosts" ("host_id") outside [];
    // Renewed every few seconds, with a word on the bus, without an event.
    "leases" ("name") outside ["expires_at", "lasts_s", "hint_fault", "event_fault", "relayed_epoch", "relayed_seq", "rollouts_term"];
    "objects" ("object_id", "from_revision") outside [];
    "observed" ("host_id", "component") outside [];
    "operations" ("operation_id") outside [];
    "render_progress" ("only_row") outside [];
    "revisions" ("revision") outside [];
    "rollout_hosts" ("rollout_id", "host_id") outside [];
    "rollouts" ("rollout_id") outside [];
    // For which session the protocol stands, so that no later one takes it over.
    "sessions" ("host_id") outside ["protocol_session_epoch"];
    // Said again every few minutes and in every session; an event is what is otherwise than before, by its name.
    "statuses" ("host_id") outside ["session_epoch", "seq", "answered", "components", "signature", "told_at", "failing"];
}

/// Tables that are no projections, and why.
pub const OUTSIDE: &[(&str, &str)] = &[
    ("api_token_hashes", "what proves a token is in no event"),
    ("claims", "what hosts say that they hold, between two lives of the authority"),
    ("artifacts", "content by its digest; each is checked against it"),
    ("enrol_token_hashes", "what proves a token is in no event"),
    ("event_order", "the order of the events themselves; checked for gaps and strangers"),
    ("events", "the events themselves"),
    ("idempotency_keys", "requests by the names that callers gave them, for answering them again"),
    ("instances", "which agents took sessions from each other, the gateways' word"),
    ("migrations", "the form of the database, not its content"),
    ("operation_hosts", "what doors saw become of each part of an operation; the outcomes are events"),
    ("presence", "liveness every 15 seconds, the gateways' word"),
    (
        "pulse",
        "when a gateway last wrote, the database's last absence, and the last time in which most hosts were silent",
    ),
    ("requests", "an inbox; what comes of a request is an event"),
];

/// Columns of a compared table that no event explains.
pub type OutsideColumns = &'static [&'static str];

/// The tables that are compared, with their columns that are not.
#[must_use]
pub fn compared_tables() -> Vec<(&'static str, OutsideColumns)> {
    TABLES.iter().map(|table| (table.name, table.outside)).collect()
}
