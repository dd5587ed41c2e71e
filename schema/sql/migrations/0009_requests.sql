-- What gateways ask the renderer to decide: an inbox, no projection. The facts that come of it are events.
CREATE TABLE IF NOT EXISTS requests (
    request_id uuid PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('addresses', 'certificate', 'enrolment')),
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'granted', 'refused')),
    host_id uuid NOT NULL,
    gateway_id uuid NOT NULL,
    token_id uuid,
    name text,
    addresses inet[],
    outcome_key bytea CHECK (octet_length(outcome_key) = 32),
    csr bytea CHECK (octet_length(csr) <= 16384),
    created_at timestamptz NOT NULL DEFAULT transaction_timestamp(),
    answered_at timestamptz,
    refusal text,
    certificate_chain bytea,
    CHECK ((kind = 'enrolment') = (token_id IS NOT NULL AND name IS NOT NULL AND outcome_key IS NOT NULL)),
    CHECK ((kind = 'addresses') = (csr IS NULL)),
    CHECK ((state = 'waiting') = (answered_at IS NULL)),
    CHECK (state = 'refused' OR refusal IS NULL)
);
CREATE INDEX IF NOT EXISTS requests_waiting ON requests (created_at, request_id) WHERE state = 'waiting';
