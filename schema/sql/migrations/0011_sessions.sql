-- The newest session of each host; epoch 0 before its first. A row exists from enrolment on, so it is what a writer locks.
CREATE TABLE IF NOT EXISTS sessions (
    host_id uuid PRIMARY KEY,
    session_epoch bigint NOT NULL CHECK (session_epoch >= 0),
    gateway_id uuid,
    agent_version text,
    boot_id uuid,
    opened_at timestamptz,
    closed_at timestamptz,
    close_reason text,
    CHECK ((session_epoch = 0) = (opened_at IS NULL)),
    CHECK ((closed_at IS NULL) = (close_reason IS NULL))
) WITH (fillfactor = 70);

-- What each host last said of each component, and what was last sent to it. A row exists from enrolment on.
CREATE TABLE IF NOT EXISTS observed (
    host_id uuid NOT NULL,
    component smallint NOT NULL,
    session_epoch bigint NOT NULL,
    update_seq bigint NOT NULL,
    outcome smallint,
    wanted_version bigint,
    wanted_digest bytea,
    applied_version bigint,
    applied_digest bytea,
    reason text,
    detail text,
    conditions jsonb NOT NULL,
    signature bytea,
    outcome_at timestamptz,
    last_snapshot_session_epoch bigint,
    last_snapshot_update_seq bigint,
    last_snapshot_version bigint,
    last_snapshot_digest bytea,
    last_snapshot_sent_at timestamptz,
    PRIMARY KEY (host_id, component)
) WITH (fillfactor = 70);

-- When each host was last heard: the gateways' word, every 15 seconds, in no event and no projection.
CREATE TABLE IF NOT EXISTS presence (
    host_id uuid PRIMARY KEY,
    session_epoch bigint NOT NULL,
    heard_at timestamptz NOT NULL
) WITH (fillfactor = 50);
