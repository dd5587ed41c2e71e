-- What each host last said, and signed, of itself as a whole: every component with every condition, complete or not here at all.
-- `digest` names what is said without when it was seen, so that a status that says the same is no event.
CREATE TABLE IF NOT EXISTS statuses (
    host_id uuid PRIMARY KEY,
    session_epoch bigint NOT NULL,
    seq bigint NOT NULL CHECK (seq > 0),
    answered bigint NOT NULL CHECK (answered >= 0),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    components jsonb NOT NULL,
    signature bytea NOT NULL CHECK (octet_length(signature) = 64),
    told_at timestamptz NOT NULL
) WITH (fillfactor = 70);
GRANT SELECT ON statuses TO holdfast_renderer, holdfast_gateway_agents, holdfast_gateway_operators, holdfast_reader;
GRANT INSERT, UPDATE ON statuses TO holdfast_gateway_agents;
GRANT DELETE ON statuses TO holdfast_gateway_operators;

-- The protocol of a host's newest session says what the host can say in it; none where it is of polls.
ALTER TABLE sessions ADD COLUMN IF NOT EXISTS protocol smallint;

-- One more fact that the agents' door may state.
DROP POLICY IF EXISTS events_of_agents_door_status ON events;
CREATE POLICY events_of_agents_door_status ON events FOR INSERT TO holdfast_gateway_agents
    WITH CHECK (kind = 'status.recorded');
