-- The agents' door tells a report of addresses that says nothing new from one that does, before it becomes a request.
GRANT SELECT (host_id, addresses, to_revision) ON host_facts TO holdfast_gateway_agents;
