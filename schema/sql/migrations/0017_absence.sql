-- How long each lease holds: from this and its end follows when its holder was last heard. NULL where an event made the row.
ALTER TABLE leases ADD COLUMN IF NOT EXISTS lasts_s double precision DEFAULT 30 CHECK (lasts_s > 0);

-- When a gateway last wrote here, and the last time in which none could: the database was away, which says nothing of any host. NULL until one did.
CREATE TABLE IF NOT EXISTS pulse (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    beat_at timestamptz,
    away_from timestamptz,
    away_until timestamptz,
    CHECK ((away_from IS NULL) = (away_until IS NULL))
) WITH (fillfactor = 50);
INSERT INTO pulse DEFAULT VALUES ON CONFLICT DO NOTHING;
GRANT SELECT ON pulse TO holdfast_renderer, holdfast_gateway_agents, holdfast_gateway_operators, holdfast_reader;
GRANT UPDATE (beat_at, away_from, away_until) ON pulse TO holdfast_gateway_agents, holdfast_gateway_operators;
