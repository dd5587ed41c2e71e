-- What each host last said of its kernel, by kind: 1 found something else than it should hold, 2 repaired, 3 contended, 4 settled.
-- `total` counts within one start of its agent, so that a report that comes again says nothing new.
CREATE TABLE IF NOT EXISTS drifts (
    host_id uuid NOT NULL,
    kind smallint NOT NULL CHECK (kind BETWEEN 1 AND 4),
    session_epoch bigint NOT NULL,
    instance uuid NOT NULL,
    total bigint NOT NULL CHECK (total > 0),
    age_ms bigint NOT NULL CHECK (age_ms >= 0),
    process text,
    pid bigint,
    counts jsonb,
    told_at timestamptz NOT NULL,
    PRIMARY KEY (host_id, kind),
    CHECK ((process IS NULL) = (pid IS NULL))
) WITH (fillfactor = 70);
GRANT SELECT ON drifts TO holdfast_renderer, holdfast_gateway_agents, holdfast_gateway_operators, holdfast_reader;
GRANT INSERT, UPDATE ON drifts TO holdfast_gateway_agents;

-- Four more facts that the agents' door may state.
DROP POLICY IF EXISTS events_of_agents_door_drift ON events;
CREATE POLICY events_of_agents_door_drift ON events FOR INSERT TO holdfast_gateway_agents
    WITH CHECK (kind IN ('drift.contended', 'drift.found', 'drift.repaired', 'drift.settled'));
