-- Accepted changes of intent: dense, because each is made under one advisory lock.
CREATE TABLE IF NOT EXISTS revisions (
    revision bigint PRIMARY KEY CHECK (revision > 0),
    at timestamptz NOT NULL,
    actor text NOT NULL,
    operation_id uuid
);

-- Authored objects, each row in force from one revision until before another.
CREATE TABLE IF NOT EXISTS objects (
    object_id uuid NOT NULL,
    kind text NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    spec jsonb,
    spec_digest bytea CHECK (octet_length(spec_digest) = 32),
    from_revision bigint NOT NULL,
    to_revision bigint,
    PRIMARY KEY (object_id, from_revision),
    CHECK ((spec IS NULL) <> (spec_digest IS NULL)),
    CHECK (to_revision > from_revision)
);
CREATE UNIQUE INDEX IF NOT EXISTS objects_in_force ON objects (kind, namespace, name) WHERE to_revision IS NULL;
CREATE INDEX IF NOT EXISTS objects_from ON objects (from_revision);
CREATE INDEX IF NOT EXISTS objects_to ON objects (to_revision) WHERE to_revision IS NOT NULL;

-- Accepted changes as their authors see them.
CREATE TABLE IF NOT EXISTS operations (
    operation_id uuid PRIMARY KEY,
    verb text NOT NULL,
    actor text NOT NULL,
    revision bigint NOT NULL,
    changes integer NOT NULL,
    state text NOT NULL,
    detail text NOT NULL,
    created_at timestamptz NOT NULL,
    finished_at timestamptz
);
CREATE INDEX IF NOT EXISTS operations_created ON operations (created_at DESC, operation_id DESC);
CREATE INDEX IF NOT EXISTS operations_revision ON operations (revision);
