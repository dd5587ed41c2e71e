-- When and by whom the last life of the authority was begun after the first; absent while it is the first.
ALTER TABLE authority ADD COLUMN IF NOT EXISTS raised_at timestamptz;
ALTER TABLE authority ADD COLUMN IF NOT EXISTS raised_by text;
ALTER TABLE authority ADD COLUMN IF NOT EXISTS raised_for text;

-- What hosts said that they hold, as they came back, where it is more than is desired of them, or where what is desired of them is signed in
-- an earlier life of the authority: empty but after a restore or a promotion. The agents' door writes it, the renderer takes out whom it let go on.
CREATE TABLE IF NOT EXISTS claims (
    host_id uuid NOT NULL,
    component smallint NOT NULL,
    session_epoch bigint NOT NULL,
    authority_epoch bigint NOT NULL,
    version bigint CHECK (version > 0),
    digest bytea CHECK (octet_length(digest) = 32),
    goes_back boolean NOT NULL,
    claimed_at timestamptz NOT NULL,
    confirmed_at timestamptz,
    PRIMARY KEY (host_id, component),
    CHECK ((version IS NULL) = (digest IS NULL)),
    CHECK (version IS NOT NULL OR NOT goes_back)
) WITH (fillfactor = 70);
GRANT SELECT ON claims TO holdfast_renderer, holdfast_gateway_agents, holdfast_gateway_operators, holdfast_reader;
GRANT INSERT, UPDATE, DELETE ON claims TO holdfast_gateway_agents;
GRANT DELETE ON claims TO holdfast_renderer;
GRANT UPDATE (confirmed_at) ON claims TO holdfast_gateway_operators;
GRANT UPDATE (raised_at, raised_by, raised_for) ON authority TO holdfast_gateway_operators;

DROP POLICY IF EXISTS events_of_renderer_in_a_new_life ON events;
CREATE POLICY events_of_renderer_in_a_new_life ON events FOR INSERT TO holdfast_renderer
    WITH CHECK (kind = 'render.signed_again');
DROP POLICY IF EXISTS events_of_operators_door_in_a_new_life ON events;
CREATE POLICY events_of_operators_door_in_a_new_life ON events FOR INSERT TO holdfast_gateway_operators
    WITH CHECK (kind = 'authority.rollback.confirmed');
