-- What an operation waits for: the first version of each (host, component) that was rendered with its revision or a later one, until every host was
-- rendered with it. `rendered_revision` is the newest intent that any of those is of. Backfilled as the events tell it.
ALTER TABLE operations ADD COLUMN IF NOT EXISTS rendered_revision bigint;
ALTER TABLE operations ADD COLUMN IF NOT EXISTS rendered_at timestamptz;
UPDATE operations o SET (rendered_revision, rendered_at) = (
    SELECT greatest((r.payload ->> 'revision')::bigint,
                    (SELECT max((d.payload ->> 'revision')::bigint) FROM events d WHERE d.kind = 'render.desired' AND d.lid < r.lid)),
           r.at
    FROM events r WHERE r.kind = 'render.committed' AND (r.payload ->> 'revision')::bigint >= o.revision
    ORDER BY r.lid LIMIT 1)
WHERE o.rendered_at IS NULL;
GRANT UPDATE (rendered_revision, rendered_at) ON operations TO holdfast_renderer;
CREATE INDEX IF NOT EXISTS operations_open ON operations (revision) WHERE state = 'accepted';
CREATE INDEX IF NOT EXISTS operations_unrendered ON operations (revision) WHERE rendered_at IS NULL;
CREATE INDEX IF NOT EXISTS desired_states_revision ON desired_states (revision);
CREATE INDEX IF NOT EXISTS objects_named ON objects (kind, namespace, name);

-- What was seen to become of each part of an operation, for good: rows are only ever added. The doors' word, in no projection.
CREATE TABLE IF NOT EXISTS operation_hosts (
    operation_id uuid NOT NULL,
    host_id uuid NOT NULL,
    component smallint NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('applied', 'cancelled', 'failed', 'inactive', 'superseded')),
    PRIMARY KEY (operation_id, host_id, component)
);
GRANT SELECT ON operation_hosts TO holdfast_renderer, holdfast_gateway_operators, holdfast_reader;
GRANT INSERT ON operation_hosts TO holdfast_gateway_operators;

-- What was asked for under a name of the one who asked, and what came of it: the same again is answered, not done.
CREATE TABLE IF NOT EXISTS idempotency_keys (
    token_id uuid NOT NULL,
    key text NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 128),
    request bytea NOT NULL CHECK (octet_length(request) = 32),
    answer jsonb NOT NULL,
    operation_id uuid,
    at timestamptz NOT NULL,
    PRIMARY KEY (token_id, key)
);
CREATE INDEX IF NOT EXISTS idempotency_keys_passing ON idempotency_keys (token_id, at) WHERE operation_id IS NULL;
GRANT SELECT, INSERT, DELETE ON idempotency_keys TO holdfast_gateway_operators;
