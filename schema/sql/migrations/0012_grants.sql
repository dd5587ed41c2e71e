-- Each process and door reads and writes what it needs. A role without a line here has nothing.
GRANT USAGE ON SCHEMA public TO holdfast_renderer, holdfast_gateway_agents, holdfast_gateway_operators, holdfast_reader;

-- Facts are added by everybody, with their number, transaction and time given by the database alone.
GRANT SELECT ON events TO holdfast_renderer, holdfast_gateway_operators, holdfast_reader;
GRANT INSERT (event_id, actor, kind, subjects, payload, causation, correlation) ON events
    TO holdfast_renderer, holdfast_gateway_agents, holdfast_gateway_operators;
GRANT SELECT ON event_order TO holdfast_renderer, holdfast_gateway_operators, holdfast_reader;
GRANT INSERT ON event_order TO holdfast_renderer;

-- Which facts a role may state.
ALTER TABLE events ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS events_read ON events;
CREATE POLICY events_read ON events FOR SELECT
    TO holdfast_renderer, holdfast_gateway_operators, holdfast_reader USING (true);
DROP POLICY IF EXISTS events_of_renderer ON events;
CREATE POLICY events_of_renderer ON events FOR INSERT TO holdfast_renderer WITH CHECK (kind IN (
    'certificate.issued', 'enrolment.refused', 'host.addresses.changed', 'host.enrolled', 'lease.acquired',
    'operation.finished', 'render.committed', 'render.desired'));
DROP POLICY IF EXISTS events_of_agents_door ON events;
CREATE POLICY events_of_agents_door ON events FOR INSERT TO holdfast_gateway_agents WITH CHECK (kind IN (
    'certificate.requested', 'enrolment.requested', 'lease.acquired', 'outcome.recorded', 'protocol.fault',
    'session.closed', 'session.opened', 'session.snapshot_sent'));
DROP POLICY IF EXISTS events_of_operators_door ON events;
CREATE POLICY events_of_operators_door ON events FOR INSERT TO holdfast_gateway_operators WITH CHECK (kind IN (
    'authority.epoch.raised', 'intent.object.deleted', 'intent.object.put', 'operation.accepted', 'operation.finished',
    'token.api.created', 'token.api.revoked', 'token.enrol.created', 'token.enrol.revoked'));

-- A gateway's lease is its own: it cannot touch the renderer's.
GRANT SELECT ON leases TO holdfast_gateway_operators, holdfast_reader;
GRANT SELECT, INSERT, UPDATE ON leases TO holdfast_renderer, holdfast_gateway_agents;
ALTER TABLE leases ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS leases_read ON leases;
CREATE POLICY leases_read ON leases FOR SELECT TO holdfast_gateway_operators, holdfast_reader USING (true);
DROP POLICY IF EXISTS leases_of_renderer ON leases;
CREATE POLICY leases_of_renderer ON leases TO holdfast_renderer USING (true);
DROP POLICY IF EXISTS leases_of_agents_door ON leases;
CREATE POLICY leases_of_agents_door ON leases TO holdfast_gateway_agents USING (name LIKE 'gw\_%');

GRANT SELECT ON authority TO holdfast_renderer, holdfast_gateway_agents, holdfast_gateway_operators, holdfast_reader;
GRANT UPDATE (authority_epoch) ON authority TO holdfast_gateway_operators;

GRANT SELECT ON artifacts TO holdfast_renderer, holdfast_gateway_agents, holdfast_gateway_operators, holdfast_reader;
GRANT INSERT ON artifacts TO holdfast_renderer, holdfast_gateway_operators;

-- Intent: the operators' door authors objects, the renderer turns accepted requests into hosts.
GRANT SELECT ON revisions, objects, operations, hosts, host_facts TO
    holdfast_renderer, holdfast_gateway_operators, holdfast_reader;
GRANT SELECT ON hosts TO holdfast_gateway_agents;
GRANT INSERT ON revisions TO holdfast_renderer, holdfast_gateway_operators;
GRANT INSERT ON objects, operations TO holdfast_gateway_operators;
GRANT UPDATE (to_revision) ON objects TO holdfast_gateway_operators;
GRANT UPDATE (state, detail, finished_at) ON operations TO holdfast_renderer, holdfast_gateway_operators;
GRANT INSERT ON hosts, host_facts, certificates TO holdfast_renderer;
GRANT UPDATE (to_revision) ON host_facts TO holdfast_renderer;
GRANT SELECT ON certificates TO holdfast_renderer, holdfast_gateway_agents, holdfast_gateway_operators, holdfast_reader;

-- Tokens: what proves them is read by the door that checks it.
GRANT SELECT, INSERT, UPDATE (revoked_at) ON enrol_tokens, api_tokens TO holdfast_gateway_operators;
GRANT INSERT ON enrol_token_hashes TO holdfast_gateway_operators;
GRANT SELECT, INSERT ON api_token_hashes TO holdfast_gateway_operators;
GRANT SELECT, UPDATE (uses) ON enrol_tokens TO holdfast_gateway_agents;
GRANT SELECT ON enrol_token_hashes TO holdfast_gateway_agents;
GRANT SELECT ON enrol_tokens TO holdfast_renderer, holdfast_reader;
GRANT SELECT ON api_tokens TO holdfast_reader;

GRANT SELECT ON requests TO holdfast_renderer, holdfast_gateway_agents, holdfast_reader;
GRANT INSERT (request_id, kind, host_id, gateway_id, token_id, name, addresses, outcome_key, csr) ON requests
    TO holdfast_gateway_agents;
GRANT UPDATE (state, answered_at, refusal, certificate_chain) ON requests TO holdfast_renderer;

-- What is desired: the renderer alone writes it.
GRANT SELECT ON desired_states, desired_latest, render_progress TO
    holdfast_renderer, holdfast_gateway_agents, holdfast_gateway_operators, holdfast_reader;
GRANT INSERT ON desired_states TO holdfast_renderer;
GRANT INSERT, UPDATE ON desired_latest, render_progress TO holdfast_renderer;

-- What is observed: the agents' door alone writes it; the renderer makes the rows of a new host.
GRANT SELECT ON sessions, observed, presence TO
    holdfast_renderer, holdfast_gateway_agents, holdfast_gateway_operators, holdfast_reader;
GRANT INSERT ON sessions, observed TO holdfast_renderer;
GRANT UPDATE ON sessions, observed TO holdfast_gateway_agents;
GRANT INSERT, UPDATE ON presence TO holdfast_gateway_agents;
