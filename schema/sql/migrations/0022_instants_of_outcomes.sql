-- When each host last said that an update of a component is in force, and that one failed: the last outcome alone forgets the other. What was said
-- so far is in the events; of one row they were written one after the other, so the highest is the last.
ALTER TABLE observed ADD COLUMN IF NOT EXISTS last_acked_at timestamptz;
ALTER TABLE observed ADD COLUMN IF NOT EXISTS last_apply_failed_at timestamptz;
UPDATE observed o SET last_acked_at = said.acked_at, last_apply_failed_at = said.failed_at
FROM (
    SELECT substr(payload ->> 'host', 4)::uuid AS host_id,
           array_position(ARRAY['policy', 'settings', 'credentials', 'workloads'], payload ->> 'component') AS component,
           (array_agg(at ORDER BY lid DESC) FILTER (WHERE payload ->> 'kind' = 'applied'))[1] AS acked_at,
           (array_agg(at ORDER BY lid DESC) FILTER (WHERE payload ->> 'kind' = 'failed'))[1] AS failed_at
    FROM events WHERE kind = 'outcome.recorded' GROUP BY 1, 2
) said
WHERE o.host_id = said.host_id AND o.component = said.component;
