-- A change that goes through the fleet in stages. At most one is open in the whole plane; `stage` of its stages are opened, the hosts of the others
-- are held at `held_revision`. `version` is the number of the row: whoever saw another one writes nothing.
CREATE TABLE IF NOT EXISTS rollouts (
    rollout_id uuid PRIMARY KEY,
    operation_id uuid NOT NULL,
    revision bigint NOT NULL,
    held_revision bigint NOT NULL CHECK (held_revision < revision),
    stages jsonb NOT NULL,
    stage integer NOT NULL CHECK (stage > 0),
    state text NOT NULL CHECK (state IN ('progressing', 'paused', 'halted', 'finished', 'aborted')),
    detail text NOT NULL,
    max_failed bigint NOT NULL,
    max_unknown bigint NOT NULL,
    stage_timeout_s bigint NOT NULL CHECK (stage_timeout_s > 0),
    actor text NOT NULL,
    created_at timestamptz NOT NULL,
    stage_began_at timestamptz NOT NULL,
    finished_at timestamptz,
    abort_revision bigint,
    version bigint NOT NULL CHECK (version > 0),
    CHECK ((state IN ('finished', 'aborted')) = (finished_at IS NOT NULL))
);
CREATE UNIQUE INDEX IF NOT EXISTS rollouts_open ON rollouts ((true)) WHERE state IN ('progressing', 'paused', 'halted');
CREATE INDEX IF NOT EXISTS rollouts_by_age ON rollouts (created_at, rollout_id);

-- Who is in which stage, from 1: settled when the rollout begins.
CREATE TABLE IF NOT EXISTS rollout_hosts (
    rollout_id uuid NOT NULL,
    host_id uuid NOT NULL,
    stage integer NOT NULL CHECK (stage > 0),
    PRIMARY KEY (rollout_id, host_id)
);
GRANT SELECT ON rollouts, rollout_hosts TO holdfast_renderer, holdfast_gateway_operators, holdfast_reader;
GRANT INSERT ON rollouts, rollout_hosts TO holdfast_gateway_operators;
GRANT UPDATE (stage, state, detail, stage_began_at, finished_at, abort_revision, version) ON rollouts TO holdfast_gateway_operators;

-- While a rollout holds hosts back: up to which revision all others are rendered, and with which stages opened.
ALTER TABLE render_progress ADD COLUMN IF NOT EXISTS let_go_rollout_id uuid;
ALTER TABLE render_progress ADD COLUMN IF NOT EXISTS let_go_stage integer;
ALTER TABLE render_progress ADD COLUMN IF NOT EXISTS let_go_revision bigint;

-- Eight more facts that the operators' door may state.
DROP POLICY IF EXISTS events_of_operators_door_rollout ON events;
CREATE POLICY events_of_operators_door_rollout ON events FOR INSERT TO holdfast_gateway_operators WITH CHECK (kind IN (
    'rollout.aborted', 'rollout.finished', 'rollout.halted', 'rollout.paused', 'rollout.resumed', 'rollout.stage_opened',
    'rollout.staged', 'rollout.started'));
