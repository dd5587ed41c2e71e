-- What enrolment tokens allow. What proves them is in a table of its own, outside the events and outside `rebuild`.
CREATE TABLE IF NOT EXISTS enrol_tokens (
    token_id uuid PRIMARY KEY,
    namespace text NOT NULL,
    labels jsonb NOT NULL,
    ports jsonb NOT NULL,
    region text,
    owner text,
    address_scope inet[] NOT NULL,
    uses_max integer NOT NULL CHECK (uses_max > 0),
    uses integer NOT NULL CHECK (uses BETWEEN 0 AND uses_max),
    expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    revoked_at timestamptz
);
CREATE TABLE IF NOT EXISTS enrol_token_hashes (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    token_id uuid NOT NULL UNIQUE
);

-- What API tokens allow, likewise.
CREATE TABLE IF NOT EXISTS api_tokens (
    token_id uuid PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL,
    namespaces jsonb NOT NULL,
    expires_at timestamptz,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    revoked_at timestamptz
);
CREATE TABLE IF NOT EXISTS api_token_hashes (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    token_id uuid NOT NULL UNIQUE
);
