-- The roles of the processes. Roles belong to the cluster, not to the database, so two databases of one cluster share them.
-- They have no password: they log in with a client certificate, or as the server's pg_hba.conf says.
DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY[
        'holdfast_renderer', 'holdfast_gateway_agents', 'holdfast_gateway_operators', 'holdfast_reader'
    ] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT', role_name);
        EXCEPTION
            -- Another database of this cluster was first, perhaps this very moment.
            WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END LOOP;
END $$;

-- Nobody makes objects here but the owner; temporary tables are for `rebuild --check`, which the operators' door runs.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
DO $$
BEGIN
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO holdfast_gateway_operators, holdfast_reader', current_database());
END $$;
