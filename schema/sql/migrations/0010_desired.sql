-- Everything that was ever desired of a host.
CREATE TABLE IF NOT EXISTS desired_states (
    host_id uuid NOT NULL,
    component smallint NOT NULL,
    version bigint NOT NULL CHECK (version > 0),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    signature bytea NOT NULL CHECK (octet_length(signature) = 64),
    authority_epoch bigint NOT NULL,
    lease_term bigint NOT NULL,
    revision bigint NOT NULL,
    rendered_at timestamptz NOT NULL,
    PRIMARY KEY (host_id, component, version)
);

-- What is desired of it now: the newest of those, one row each, for the statements of the session path.
CREATE TABLE IF NOT EXISTS desired_latest (
    host_id uuid NOT NULL,
    component smallint NOT NULL,
    version bigint NOT NULL CHECK (version > 0),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    signature bytea NOT NULL CHECK (octet_length(signature) = 64),
    authority_epoch bigint NOT NULL,
    revision bigint NOT NULL,
    rendered_at timestamptz NOT NULL,
    PRIMARY KEY (host_id, component)
) WITH (fillfactor = 70);

-- Up to which revision every host has what it is to have: one row, from the first render on.
CREATE TABLE IF NOT EXISTS render_progress (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    revision bigint NOT NULL,
    lease_term bigint NOT NULL,
    rendered_at timestamptz NOT NULL
);
