-- Which agent has or had each host's newest session, from whom it took it while it was open, and how often in a row one took it back from the other:
-- two that live with one identity do so for ever. The gateways' word, in no projection.
CREATE TABLE IF NOT EXISTS instances (
    host_id uuid PRIMARY KEY,
    boot_id uuid NOT NULL,
    address inet NOT NULL,
    other_boot_id uuid,
    other_address inet,
    turns integer NOT NULL DEFAULT 0 CHECK (turns >= 0),
    turned_at timestamptz,
    contested boolean NOT NULL DEFAULT false,
    CHECK ((other_boot_id IS NULL) = (other_address IS NULL)),
    CHECK (NOT contested OR turned_at IS NOT NULL)
) WITH (fillfactor = 70);
GRANT SELECT ON instances TO holdfast_renderer, holdfast_gateway_agents, holdfast_gateway_operators, holdfast_reader;
GRANT INSERT, UPDATE ON instances TO holdfast_gateway_agents;

-- One more fact that the agents' door may state.
DROP POLICY IF EXISTS events_of_agents_door_contested ON events;
CREATE POLICY events_of_agents_door_contested ON events FOR INSERT TO holdfast_gateway_agents
    WITH CHECK (kind = 'session.contested');
