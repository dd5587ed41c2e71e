-- Enrolled machines: what never changes of them.
CREATE TABLE IF NOT EXISTS hosts (
    host_id uuid PRIMARY KEY,
    namespace text NOT NULL,
    name text NOT NULL,
    region text,
    owner text,
    address_scope inet[] NOT NULL,
    token_id uuid NOT NULL,
    outcome_key bytea NOT NULL CHECK (octet_length(outcome_key) = 32),
    enrolled_at timestamptz NOT NULL,
    UNIQUE (namespace, name)
);

-- What changes of them, by revision.
CREATE TABLE IF NOT EXISTS host_facts (
    host_id uuid NOT NULL,
    labels jsonb NOT NULL,
    ports jsonb NOT NULL,
    addresses inet[] NOT NULL,
    from_revision bigint NOT NULL,
    to_revision bigint,
    PRIMARY KEY (host_id, from_revision),
    CHECK (to_revision > from_revision)
);
CREATE UNIQUE INDEX IF NOT EXISTS host_facts_in_force ON host_facts (host_id) WHERE to_revision IS NULL;
CREATE INDEX IF NOT EXISTS host_facts_from ON host_facts (from_revision);
CREATE INDEX IF NOT EXISTS host_facts_to ON host_facts (to_revision) WHERE to_revision IS NOT NULL;

-- Certificates given to hosts.
CREATE TABLE IF NOT EXISTS certificates (
    serial text PRIMARY KEY,
    host_id uuid NOT NULL,
    request_id uuid NOT NULL,
    not_before timestamptz NOT NULL,
    not_after timestamptz NOT NULL,
    issued_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS certificates_host ON certificates (host_id, issued_at);
