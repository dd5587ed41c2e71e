-- Why a rollout halted, while it is; and the last stage that an operator let pass though no host of it was left to prove the change.
ALTER TABLE rollouts ADD COLUMN IF NOT EXISTS halt_reason text;
ALTER TABLE rollouts ADD COLUMN IF NOT EXISTS excused_stage integer NOT NULL DEFAULT 0;
GRANT UPDATE (halt_reason, excused_stage) ON rollouts TO holdfast_gateway_operators;

-- The term under which a build claimed the lease that knows rollouts: an older one raises the term and leaves this as it was.
ALTER TABLE leases ADD COLUMN IF NOT EXISTS rollouts_term bigint DEFAULT 0;
