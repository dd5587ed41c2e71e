-- A host that was taken out: who it was stays, its name is free again, and what is of now goes (sessions, observed, drifts and what gateways say of it).
ALTER TABLE hosts ADD COLUMN IF NOT EXISTS decommissioned_at timestamptz;
ALTER TABLE hosts DROP CONSTRAINT IF EXISTS hosts_namespace_name_key;
CREATE UNIQUE INDEX IF NOT EXISTS hosts_enrolled ON hosts (namespace, name) WHERE decommissioned_at IS NULL;

GRANT UPDATE (decommissioned_at) ON hosts TO holdfast_gateway_operators;
GRANT UPDATE (to_revision) ON host_facts TO holdfast_gateway_operators;
GRANT DELETE ON sessions, observed, presence, claims, instances, drifts TO holdfast_gateway_operators;

-- Two more facts that the operators' door may state.
DROP POLICY IF EXISTS events_of_operators_door_decommission ON events;
CREATE POLICY events_of_operators_door_decommission ON events FOR INSERT TO holdfast_gateway_operators
    WITH CHECK (kind IN ('host.decommissioned', 'session.closed'));
