-- One more fact that the operators' door may state: who asked something of a host's session.
DROP POLICY IF EXISTS events_of_operators_door_directives ON events;
CREATE POLICY events_of_operators_door_directives ON events FOR INSERT TO holdfast_gateway_operators
    WITH CHECK (kind = 'host.directed');
