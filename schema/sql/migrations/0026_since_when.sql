-- Since when something that blocks is false of each component of a host's last status, and at which version: `told_at` moves whenever the same is said
-- again.
ALTER TABLE statuses ADD COLUMN IF NOT EXISTS failing jsonb NOT NULL DEFAULT '{}';

-- Of which session the protocol is. A gateway of an earlier build opens a session without a word of either: then none is known, not that of the session
-- before.
ALTER TABLE sessions ADD COLUMN IF NOT EXISTS protocol_session_epoch bigint;
UPDATE sessions SET protocol_session_epoch = session_epoch WHERE protocol IS NOT NULL AND protocol_session_epoch IS NULL;
CREATE OR REPLACE FUNCTION forget_protocol() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.protocol := NULL;
    RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER sessions_without_protocol BEFORE UPDATE OF session_epoch ON sessions FOR EACH ROW
    WHEN (NEW.session_epoch <> OLD.session_epoch AND NEW.protocol_session_epoch IS DISTINCT FROM NEW.session_epoch)
    EXECUTE FUNCTION forget_protocol();

-- The last time in which most hosts were silent together: what they had in common was at fault, and it is held against none of them.
ALTER TABLE pulse ADD COLUMN IF NOT EXISTS silent_from timestamptz;
ALTER TABLE pulse ADD COLUMN IF NOT EXISTS silent_until timestamptz;
GRANT UPDATE (silent_from, silent_until) ON pulse TO holdfast_gateway_agents, holdfast_gateway_operators;
