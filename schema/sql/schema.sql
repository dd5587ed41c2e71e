-- The whole form of the database: what the steps in migrations/ add up to.
-- Kept true by services/store/tests/migrations.rs, which rewrites it with HOLDFAST_BLESS=1.
CREATE FUNCTION public.forget_protocol() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    NEW.protocol := NULL;
    RETURN NEW;
END
$$;
CREATE FUNCTION public.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are only ever added', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TABLE public.api_token_hashes (
    hash bytea NOT NULL,
    token_id uuid NOT NULL,
    CONSTRAINT api_token_hashes_hash_check CHECK ((octet_length(hash) = 32))
);
CREATE TABLE public.api_tokens (
    token_id uuid NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    namespaces jsonb NOT NULL,
    expires_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    created_by text NOT NULL,
    revoked_at timestamp with time zone
);
CREATE TABLE public.artifacts (
    digest bytea NOT NULL,
    bytes bytea NOT NULL,
    CONSTRAINT artifacts_digest_check CHECK ((octet_length(digest) = 32))
);
ALTER TABLE ONLY public.artifacts ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE TABLE public.authority (
    only_row boolean DEFAULT true NOT NULL,
    authority_id uuid NOT NULL,
    authority_epoch bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    raised_at timestamp with time zone,
    raised_by text,
    raised_for text,
    CONSTRAINT authority_authority_epoch_check CHECK ((authority_epoch > 0)),
    CONSTRAINT authority_only_row_check CHECK (only_row)
);
CREATE TABLE public.certificates (
    serial text NOT NULL,
    host_id uuid NOT NULL,
    request_id uuid NOT NULL,
    not_before timestamp with time zone NOT NULL,
    not_after timestamp with time zone NOT NULL,
    issued_at timestamp with time zone NOT NULL
);
CREATE TABLE public.claims (
    host_id uuid NOT NULL,
    component smallint NOT NULL,
    session_epoch bigint NOT NULL,
    authority_epoch bigint NOT NULL,
    version bigint,
    digest bytea,
    goes_back boolean NOT NULL,
    claimed_at timestamp with time zone NOT NULL,
    confirmed_at timestamp with time zone,
    CONSTRAINT claims_check CHECK (((version IS NULL) = (digest IS NULL))),
    CONSTRAINT claims_check1 CHECK (((version IS NOT NULL) OR (NOT goes_back))),
    CONSTRAINT claims_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT claims_version_check CHECK ((version > 0))
)
WITH (fillfactor='70');
CREATE TABLE public.desired_latest (
    host_id uuid NOT NULL,
    component smallint NOT NULL,
    version bigint NOT NULL,
    digest bytea NOT NULL,
    signature bytea NOT NULL,
    authority_epoch bigint NOT NULL,
    revision bigint NOT NULL,
    rendered_at timestamp with time zone NOT NULL,
    CONSTRAINT desired_latest_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT desired_latest_signature_check CHECK ((octet_length(signature) = 64)),
    CONSTRAINT desired_latest_version_check CHECK ((version > 0))
)
WITH (fillfactor='70');
CREATE TABLE public.desired_states (
    host_id uuid NOT NULL,
    component smallint NOT NULL,
    version bigint NOT NULL,
    digest bytea NOT NULL,
    signature bytea NOT NULL,
    authority_epoch bigint NOT NULL,
    lease_term bigint NOT NULL,
    revision bigint NOT NULL,
    rendered_at timestamp with time zone NOT NULL,
    CONSTRAINT desired_states_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT desired_states_signature_check CHECK ((octet_length(signature) = 64)),
    CONSTRAINT desired_states_version_check CHECK ((version > 0))
);
CREATE TABLE public.drifts (
    host_id uuid NOT NULL,
    kind smallint NOT NULL,
    session_epoch bigint NOT NULL,
    instance uuid NOT NULL,
    total bigint NOT NULL,
    age_ms bigint NOT NULL,
    process text,
    pid bigint,
    counts jsonb,
    told_at timestamp with time zone NOT NULL,
    CONSTRAINT drifts_age_ms_check CHECK ((age_ms >= 0)),
    CONSTRAINT drifts_check CHECK (((process IS NULL) = (pid IS NULL))),
    CONSTRAINT drifts_kind_check CHECK (((kind >= 1) AND (kind <= 4))),
    CONSTRAINT drifts_total_check CHECK ((total > 0))
)
WITH (fillfactor='70');
CREATE TABLE public.enrol_token_hashes (
    hash bytea NOT NULL,
    token_id uuid NOT NULL,
    CONSTRAINT enrol_token_hashes_hash_check CHECK ((octet_length(hash) = 32))
);
CREATE TABLE public.enrol_tokens (
    token_id uuid NOT NULL,
    namespace text NOT NULL,
    labels jsonb NOT NULL,
    ports jsonb NOT NULL,
    region text,
    owner text,
    address_scope inet[] NOT NULL,
    uses_max integer NOT NULL,
    uses integer NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    created_by text NOT NULL,
    revoked_at timestamp with time zone,
    CONSTRAINT enrol_tokens_check CHECK (((uses >= 0) AND (uses <= uses_max))),
    CONSTRAINT enrol_tokens_uses_max_check CHECK ((uses_max > 0))
);
CREATE TABLE public.event_order (
    authority_epoch bigint NOT NULL,
    seq bigint NOT NULL,
    event_id uuid NOT NULL,
    CONSTRAINT event_order_authority_epoch_check CHECK ((authority_epoch > 0)),
    CONSTRAINT event_order_seq_check CHECK ((seq > 0))
);
CREATE TABLE public.events (
    lid bigint NOT NULL,
    event_id uuid NOT NULL,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    at timestamp with time zone DEFAULT transaction_timestamp() NOT NULL,
    actor text NOT NULL,
    kind text NOT NULL,
    subjects text[] NOT NULL,
    payload jsonb NOT NULL,
    causation uuid,
    correlation uuid
);
ALTER TABLE public.events ALTER COLUMN lid ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.events_lid_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.host_facts (
    host_id uuid NOT NULL,
    labels jsonb NOT NULL,
    ports jsonb NOT NULL,
    addresses inet[] NOT NULL,
    from_revision bigint NOT NULL,
    to_revision bigint,
    CONSTRAINT host_facts_check CHECK ((to_revision > from_revision))
);
CREATE TABLE public.hosts (
    host_id uuid NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    region text,
    owner text,
    address_scope inet[] NOT NULL,
    token_id uuid NOT NULL,
    outcome_key bytea NOT NULL,
    enrolled_at timestamp with time zone NOT NULL,
    decommissioned_at timestamp with time zone,
    CONSTRAINT hosts_outcome_key_check CHECK ((octet_length(outcome_key) = 32))
);
CREATE TABLE public.idempotency_keys (
    token_id uuid NOT NULL,
    key text NOT NULL,
    request bytea NOT NULL,
    answer jsonb NOT NULL,
    operation_id uuid,
    at timestamp with time zone NOT NULL,
    CONSTRAINT idempotency_keys_key_check CHECK (((octet_length(key) >= 1) AND (octet_length(key) <= 128))),
    CONSTRAINT idempotency_keys_request_check CHECK ((octet_length(request) = 32))
);
CREATE TABLE public.instances (
    host_id uuid NOT NULL,
    boot_id uuid NOT NULL,
    address inet NOT NULL,
    other_boot_id uuid,
    other_address inet,
    turns integer DEFAULT 0 NOT NULL,
    turned_at timestamp with time zone,
    contested boolean DEFAULT false NOT NULL,
    CONSTRAINT instances_check CHECK (((other_boot_id IS NULL) = (other_address IS NULL))),
    CONSTRAINT instances_check1 CHECK (((NOT contested) OR (turned_at IS NOT NULL))),
    CONSTRAINT instances_turns_check CHECK ((turns >= 0))
)
WITH (fillfactor='70');
CREATE TABLE public.leases (
    name text NOT NULL,
    holder text NOT NULL,
    term bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    hint_fault text,
    event_fault text,
    relayed_epoch bigint,
    relayed_seq bigint,
    lasts_s double precision DEFAULT 30,
    rollouts_term bigint DEFAULT 0,
    CONSTRAINT leases_event_fault_check CHECK ((octet_length(event_fault) <= 256)),
    CONSTRAINT leases_hint_fault_check CHECK ((octet_length(hint_fault) <= 256)),
    CONSTRAINT leases_lasts_s_check CHECK ((lasts_s > (0)::double precision)),
    CONSTRAINT leases_term_check CHECK ((term > 0))
);
CREATE TABLE public.migrations (
    number integer NOT NULL,
    name text NOT NULL,
    digest bytea NOT NULL,
    taken_at timestamp with time zone DEFAULT transaction_timestamp() NOT NULL
);
CREATE TABLE public.objects (
    object_id uuid NOT NULL,
    kind text NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    spec jsonb,
    spec_digest bytea,
    from_revision bigint NOT NULL,
    to_revision bigint,
    CONSTRAINT objects_check CHECK (((spec IS NULL) <> (spec_digest IS NULL))),
    CONSTRAINT objects_check1 CHECK ((to_revision > from_revision)),
    CONSTRAINT objects_spec_digest_check CHECK ((octet_length(spec_digest) = 32))
);
CREATE TABLE public.observed (
    host_id uuid NOT NULL,
    component smallint NOT NULL,
    session_epoch bigint NOT NULL,
    update_seq bigint NOT NULL,
    outcome smallint,
    wanted_version bigint,
    wanted_digest bytea,
    applied_version bigint,
    applied_digest bytea,
    reason text,
    detail text,
    conditions jsonb NOT NULL,
    signature bytea,
    outcome_at timestamp with time zone,
    last_snapshot_session_epoch bigint,
    last_snapshot_update_seq bigint,
    last_snapshot_version bigint,
    last_snapshot_digest bytea,
    last_snapshot_sent_at timestamp with time zone,
    last_acked_at timestamp with time zone,
    last_apply_failed_at timestamp with time zone
)
WITH (fillfactor='70');
CREATE TABLE public.operation_hosts (
    operation_id uuid NOT NULL,
    host_id uuid NOT NULL,
    component smallint NOT NULL,
    outcome text NOT NULL,
    CONSTRAINT operation_hosts_outcome_check CHECK ((outcome = ANY (ARRAY['applied'::text, 'cancelled'::text, 'failed'::text, 'inactive'::text, 'superseded'::text])))
);
CREATE TABLE public.operations (
    operation_id uuid NOT NULL,
    verb text NOT NULL,
    actor text NOT NULL,
    revision bigint NOT NULL,
    changes integer NOT NULL,
    state text NOT NULL,
    detail text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    rendered_revision bigint,
    rendered_at timestamp with time zone
);
CREATE TABLE public.presence (
    host_id uuid NOT NULL,
    session_epoch bigint NOT NULL,
    heard_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE public.pulse (
    only_row boolean DEFAULT true NOT NULL,
    beat_at timestamp with time zone,
    away_from timestamp with time zone,
    away_until timestamp with time zone,
    silent_from timestamp with time zone,
    silent_until timestamp with time zone,
    CONSTRAINT pulse_check CHECK (((away_from IS NULL) = (away_until IS NULL))),
    CONSTRAINT pulse_only_row_check CHECK (only_row)
)
WITH (fillfactor='50');
CREATE TABLE public.render_progress (
    only_row boolean DEFAULT true NOT NULL,
    revision bigint NOT NULL,
    lease_term bigint NOT NULL,
    rendered_at timestamp with time zone NOT NULL,
    let_go_rollout_id uuid,
    let_go_stage integer,
    let_go_revision bigint,
    CONSTRAINT render_progress_only_row_check CHECK (only_row)
);
CREATE TABLE public.requests (
    request_id uuid NOT NULL,
    kind text NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    host_id uuid NOT NULL,
    gateway_id uuid NOT NULL,
    token_id uuid,
    name text,
    addresses inet[],
    outcome_key bytea,
    csr bytea,
    created_at timestamp with time zone DEFAULT transaction_timestamp() NOT NULL,
    answered_at timestamp with time zone,
    refusal text,
    certificate_chain bytea,
    CONSTRAINT requests_check CHECK (((kind = 'enrolment'::text) = ((token_id IS NOT NULL) AND (name IS NOT NULL) AND (outcome_key IS NOT NULL)))),
    CONSTRAINT requests_check1 CHECK (((kind = 'addresses'::text) = (csr IS NULL))),
    CONSTRAINT requests_check2 CHECK (((state = 'waiting'::text) = (answered_at IS NULL))),
    CONSTRAINT requests_check3 CHECK (((state = 'refused'::text) OR (refusal IS NULL))),
    CONSTRAINT requests_csr_check CHECK ((octet_length(csr) <= 16384)),
    CONSTRAINT requests_kind_check CHECK ((kind = ANY (ARRAY['addresses'::text, 'certificate'::text, 'enrolment'::text]))),
    CONSTRAINT requests_outcome_key_check CHECK ((octet_length(outcome_key) = 32)),
    CONSTRAINT requests_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'granted'::text, 'refused'::text])))
);
CREATE TABLE public.revisions (
    revision bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    actor text NOT NULL,
    operation_id uuid,
    CONSTRAINT revisions_revision_check CHECK ((revision > 0))
);
CREATE TABLE public.rollout_hosts (
    rollout_id uuid NOT NULL,
    host_id uuid NOT NULL,
    stage integer NOT NULL,
    CONSTRAINT rollout_hosts_stage_check CHECK ((stage > 0))
);
CREATE TABLE public.rollouts (
    rollout_id uuid NOT NULL,
    operation_id uuid NOT NULL,
    revision bigint NOT NULL,
    held_revision bigint NOT NULL,
    stages jsonb NOT NULL,
    stage integer NOT NULL,
    state text NOT NULL,
    detail text NOT NULL,
    max_failed bigint NOT NULL,
    max_unknown bigint NOT NULL,
    stage_timeout_s bigint NOT NULL,
    actor text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    stage_began_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    abort_revision bigint,
    version bigint NOT NULL,
    halt_reason text,
    excused_stage integer DEFAULT 0 NOT NULL,
    CONSTRAINT rollouts_check CHECK ((held_revision < revision)),
    CONSTRAINT rollouts_check1 CHECK (((state = ANY (ARRAY['finished'::text, 'aborted'::text])) = (finished_at IS NOT NULL))),
    CONSTRAINT rollouts_stage_check CHECK ((stage > 0)),
    CONSTRAINT rollouts_stage_timeout_s_check CHECK ((stage_timeout_s > 0)),
    CONSTRAINT rollouts_state_check CHECK ((state = ANY (ARRAY['progressing'::text, 'paused'::text, 'halted'::text, 'finished'::text, 'aborted'::text]))),
    CONSTRAINT rollouts_version_check CHECK ((version > 0))
);
CREATE TABLE public.sessions (
    host_id uuid NOT NULL,
    session_epoch bigint NOT NULL,
    gateway_id uuid,
    agent_version text,
    boot_id uuid,
    opened_at timestamp with time zone,
    closed_at timestamp with time zone,
    close_reason text,
    protocol smallint,
    protocol_session_epoch bigint,
    CONSTRAINT sessions_check CHECK (((session_epoch = 0) = (opened_at IS NULL))),
    CONSTRAINT sessions_check1 CHECK (((closed_at IS NULL) = (close_reason IS NULL))),
    CONSTRAINT sessions_session_epoch_check CHECK ((session_epoch >= 0))
)
WITH (fillfactor='70');
CREATE TABLE public.statuses (
    host_id uuid NOT NULL,
    session_epoch bigint NOT NULL,
    seq bigint NOT NULL,
    answered bigint NOT NULL,
    digest bytea NOT NULL,
    components jsonb NOT NULL,
    signature bytea NOT NULL,
    told_at timestamp with time zone NOT NULL,
    failing jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT statuses_answered_check CHECK ((answered >= 0)),
    CONSTRAINT statuses_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT statuses_seq_check CHECK ((seq > 0)),
    CONSTRAINT statuses_signature_check CHECK ((octet_length(signature) = 64))
)
WITH (fillfactor='70');
ALTER TABLE ONLY public.api_token_hashes
    ADD CONSTRAINT api_token_hashes_pkey PRIMARY KEY (hash);
ALTER TABLE ONLY public.api_token_hashes
    ADD CONSTRAINT api_token_hashes_token_id_key UNIQUE (token_id);
ALTER TABLE ONLY public.api_tokens
    ADD CONSTRAINT api_tokens_pkey PRIMARY KEY (token_id);
ALTER TABLE ONLY public.artifacts
    ADD CONSTRAINT artifacts_pkey PRIMARY KEY (digest);
ALTER TABLE ONLY public.authority
    ADD CONSTRAINT authority_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.certificates
    ADD CONSTRAINT certificates_pkey PRIMARY KEY (serial);
ALTER TABLE ONLY public.claims
    ADD CONSTRAINT claims_pkey PRIMARY KEY (host_id, component);
ALTER TABLE ONLY public.desired_latest
    ADD CONSTRAINT desired_latest_pkey PRIMARY KEY (host_id, component);
ALTER TABLE ONLY public.desired_states
    ADD CONSTRAINT desired_states_pkey PRIMARY KEY (host_id, component, version);
ALTER TABLE ONLY public.drifts
    ADD CONSTRAINT drifts_pkey PRIMARY KEY (host_id, kind);
ALTER TABLE ONLY public.enrol_token_hashes
    ADD CONSTRAINT enrol_token_hashes_pkey PRIMARY KEY (hash);
ALTER TABLE ONLY public.enrol_token_hashes
    ADD CONSTRAINT enrol_token_hashes_token_id_key UNIQUE (token_id);
ALTER TABLE ONLY public.enrol_tokens
    ADD CONSTRAINT enrol_tokens_pkey PRIMARY KEY (token_id);
ALTER TABLE ONLY public.event_order
    ADD CONSTRAINT event_order_event_id_key UNIQUE (event_id);
ALTER TABLE ONLY public.event_order
    ADD CONSTRAINT event_order_pkey PRIMARY KEY (authority_epoch, seq);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_event_id_key UNIQUE (event_id);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (lid);
ALTER TABLE ONLY public.host_facts
    ADD CONSTRAINT host_facts_pkey PRIMARY KEY (host_id, from_revision);
ALTER TABLE ONLY public.hosts
    ADD CONSTRAINT hosts_pkey PRIMARY KEY (host_id);
ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (token_id, key);
ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_pkey PRIMARY KEY (host_id);
ALTER TABLE ONLY public.leases
    ADD CONSTRAINT leases_name_term_key UNIQUE (name, term);
ALTER TABLE ONLY public.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.objects
    ADD CONSTRAINT objects_pkey PRIMARY KEY (object_id, from_revision);
ALTER TABLE ONLY public.observed
    ADD CONSTRAINT observed_pkey PRIMARY KEY (host_id, component);
ALTER TABLE ONLY public.operation_hosts
    ADD CONSTRAINT operation_hosts_pkey PRIMARY KEY (operation_id, host_id, component);
ALTER TABLE ONLY public.operations
    ADD CONSTRAINT operations_pkey PRIMARY KEY (operation_id);
ALTER TABLE ONLY public.presence
    ADD CONSTRAINT presence_pkey PRIMARY KEY (host_id);
ALTER TABLE ONLY public.pulse
    ADD CONSTRAINT pulse_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.render_progress
    ADD CONSTRAINT render_progress_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.requests
    ADD CONSTRAINT requests_pkey PRIMARY KEY (request_id);
ALTER TABLE ONLY public.revisions
    ADD CONSTRAINT revisions_pkey PRIMARY KEY (revision);
ALTER TABLE ONLY public.rollout_hosts
    ADD CONSTRAINT rollout_hosts_pkey PRIMARY KEY (rollout_id, host_id);
ALTER TABLE ONLY public.rollouts
    ADD CONSTRAINT rollouts_pkey PRIMARY KEY (rollout_id);
ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (host_id);
ALTER TABLE ONLY public.statuses
    ADD CONSTRAINT statuses_pkey PRIMARY KEY (host_id);
CREATE INDEX certificates_host ON public.certificates USING btree (host_id, issued_at);
CREATE INDEX desired_states_revision ON public.desired_states USING btree (revision);
CREATE INDEX events_xid ON public.events USING btree (xid);
CREATE INDEX host_facts_from ON public.host_facts USING btree (from_revision);
CREATE UNIQUE INDEX host_facts_in_force ON public.host_facts USING btree (host_id) WHERE (to_revision IS NULL);
CREATE INDEX host_facts_to ON public.host_facts USING btree (to_revision) WHERE (to_revision IS NOT NULL);
CREATE UNIQUE INDEX hosts_enrolled ON public.hosts USING btree (namespace, name) WHERE (decommissioned_at IS NULL);
CREATE INDEX idempotency_keys_passing ON public.idempotency_keys USING btree (token_id, at) WHERE (operation_id IS NULL);
CREATE INDEX objects_from ON public.objects USING btree (from_revision);
CREATE UNIQUE INDEX objects_in_force ON public.objects USING btree (kind, namespace, name) WHERE (to_revision IS NULL);
CREATE INDEX objects_named ON public.objects USING btree (kind, namespace, name);
CREATE INDEX objects_to ON public.objects USING btree (to_revision) WHERE (to_revision IS NOT NULL);
CREATE INDEX operations_created ON public.operations USING btree (created_at DESC, operation_id DESC);
CREATE INDEX operations_open ON public.operations USING btree (revision) WHERE (state = 'accepted'::text);
CREATE INDEX operations_revision ON public.operations USING btree (revision);
CREATE INDEX operations_unrendered ON public.operations USING btree (revision) WHERE (rendered_at IS NULL);
CREATE INDEX requests_of_key ON public.requests USING btree (outcome_key) WHERE (kind = 'enrolment'::text);
CREATE INDEX requests_waiting ON public.requests USING btree (created_at, request_id) WHERE (state = 'waiting'::text);
CREATE INDEX rollouts_by_age ON public.rollouts USING btree (created_at, rollout_id);
CREATE UNIQUE INDEX rollouts_open ON public.rollouts USING btree ((true)) WHERE (state = ANY (ARRAY['progressing'::text, 'paused'::text, 'halted'::text]));
CREATE TRIGGER event_order_only_added BEFORE DELETE OR UPDATE OR TRUNCATE ON public.event_order FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();
CREATE TRIGGER events_only_added BEFORE DELETE OR UPDATE OR TRUNCATE ON public.events FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();
CREATE TRIGGER sessions_without_protocol BEFORE UPDATE OF session_epoch ON public.sessions FOR EACH ROW WHEN (((new.session_epoch <> old.session_epoch) AND (new.protocol_session_epoch IS DISTINCT FROM new.session_epoch))) EXECUTE FUNCTION public.forget_protocol();
ALTER TABLE public.events ENABLE ROW LEVEL SECURITY;
CREATE POLICY events_of_agents_door ON public.events FOR INSERT TO holdfast_gateway_agents WITH CHECK ((kind = ANY (ARRAY['certificate.requested'::text, 'enrolment.requested'::text, 'lease.acquired'::text, 'outcome.recorded'::text, 'protocol.fault'::text, 'session.closed'::text, 'session.opened'::text, 'session.snapshot_sent'::text])));
CREATE POLICY events_of_agents_door_contested ON public.events FOR INSERT TO holdfast_gateway_agents WITH CHECK ((kind = 'session.contested'::text));
CREATE POLICY events_of_agents_door_drift ON public.events FOR INSERT TO holdfast_gateway_agents WITH CHECK ((kind = ANY (ARRAY['drift.contended'::text, 'drift.found'::text, 'drift.repaired'::text, 'drift.settled'::text])));
CREATE POLICY events_of_agents_door_status ON public.events FOR INSERT TO holdfast_gateway_agents WITH CHECK ((kind = 'status.recorded'::text));
CREATE POLICY events_of_operators_door ON public.events FOR INSERT TO holdfast_gateway_operators WITH CHECK ((kind = ANY (ARRAY['authority.epoch.raised'::text, 'intent.object.deleted'::text, 'intent.object.put'::text, 'operation.accepted'::text, 'operation.finished'::text, 'token.api.created'::text, 'token.api.revoked'::text, 'token.enrol.created'::text, 'token.enrol.revoked'::text])));
CREATE POLICY events_of_operators_door_decommission ON public.events FOR INSERT TO holdfast_gateway_operators WITH CHECK ((kind = ANY (ARRAY['host.decommissioned'::text, 'session.closed'::text])));
CREATE POLICY events_of_operators_door_directives ON public.events FOR INSERT TO holdfast_gateway_operators WITH CHECK ((kind = 'host.directed'::text));
CREATE POLICY events_of_operators_door_in_a_new_life ON public.events FOR INSERT TO holdfast_gateway_operators WITH CHECK ((kind = 'authority.rollback.confirmed'::text));
CREATE POLICY events_of_operators_door_rollout ON public.events FOR INSERT TO holdfast_gateway_operators WITH CHECK ((kind = ANY (ARRAY['rollout.aborted'::text, 'rollout.finished'::text, 'rollout.halted'::text, 'rollout.paused'::text, 'rollout.resumed'::text, 'rollout.stage_opened'::text, 'rollout.staged'::text, 'rollout.started'::text])));
CREATE POLICY events_of_renderer ON public.events FOR INSERT TO holdfast_renderer WITH CHECK ((kind = ANY (ARRAY['certificate.issued'::text, 'enrolment.refused'::text, 'host.addresses.changed'::text, 'host.enrolled'::text, 'lease.acquired'::text, 'operation.finished'::text, 'render.committed'::text, 'render.desired'::text])));
CREATE POLICY events_of_renderer_in_a_new_life ON public.events FOR INSERT TO holdfast_renderer WITH CHECK ((kind = 'render.signed_again'::text));
CREATE POLICY events_read ON public.events FOR SELECT TO holdfast_renderer, holdfast_gateway_operators, holdfast_reader USING (true);
ALTER TABLE public.leases ENABLE ROW LEVEL SECURITY;
CREATE POLICY leases_of_agents_door ON public.leases TO holdfast_gateway_agents USING ((name ~~ 'gw\_%'::text));
CREATE POLICY leases_of_renderer ON public.leases TO holdfast_renderer USING (true);
CREATE POLICY leases_read ON public.leases FOR SELECT TO holdfast_gateway_operators, holdfast_reader USING (true);
GRANT USAGE ON SCHEMA public TO holdfast_renderer;
GRANT USAGE ON SCHEMA public TO holdfast_gateway_agents;
GRANT USAGE ON SCHEMA public TO holdfast_gateway_operators;
GRANT USAGE ON SCHEMA public TO holdfast_reader;
GRANT SELECT,INSERT ON TABLE public.api_token_hashes TO holdfast_gateway_operators;
GRANT SELECT,INSERT ON TABLE public.api_tokens TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.api_tokens TO holdfast_reader;
GRANT UPDATE(revoked_at) ON TABLE public.api_tokens TO holdfast_gateway_operators;
GRANT SELECT,INSERT ON TABLE public.artifacts TO holdfast_renderer;
GRANT SELECT ON TABLE public.artifacts TO holdfast_gateway_agents;
GRANT SELECT,INSERT ON TABLE public.artifacts TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.artifacts TO holdfast_reader;
GRANT SELECT ON TABLE public.authority TO holdfast_renderer;
GRANT SELECT ON TABLE public.authority TO holdfast_gateway_agents;
GRANT SELECT ON TABLE public.authority TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.authority TO holdfast_reader;
GRANT UPDATE(authority_epoch) ON TABLE public.authority TO holdfast_gateway_operators;
GRANT UPDATE(raised_at) ON TABLE public.authority TO holdfast_gateway_operators;
GRANT UPDATE(raised_by) ON TABLE public.authority TO holdfast_gateway_operators;
GRANT UPDATE(raised_for) ON TABLE public.authority TO holdfast_gateway_operators;
GRANT SELECT,INSERT ON TABLE public.certificates TO holdfast_renderer;
GRANT SELECT ON TABLE public.certificates TO holdfast_gateway_agents;
GRANT SELECT ON TABLE public.certificates TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.certificates TO holdfast_reader;
GRANT SELECT,DELETE ON TABLE public.claims TO holdfast_renderer;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.claims TO holdfast_gateway_agents;
GRANT SELECT,DELETE ON TABLE public.claims TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.claims TO holdfast_reader;
GRANT UPDATE(confirmed_at) ON TABLE public.claims TO holdfast_gateway_operators;
GRANT SELECT,INSERT,UPDATE ON TABLE public.desired_latest TO holdfast_renderer;
GRANT SELECT ON TABLE public.desired_latest TO holdfast_gateway_agents;
GRANT SELECT ON TABLE public.desired_latest TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.desired_latest TO holdfast_reader;
GRANT SELECT,INSERT ON TABLE public.desired_states TO holdfast_renderer;
GRANT SELECT ON TABLE public.desired_states TO holdfast_gateway_agents;
GRANT SELECT ON TABLE public.desired_states TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.desired_states TO holdfast_reader;
GRANT SELECT ON TABLE public.drifts TO holdfast_renderer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.drifts TO holdfast_gateway_agents;
GRANT SELECT,DELETE ON TABLE public.drifts TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.drifts TO holdfast_reader;
GRANT INSERT ON TABLE public.enrol_token_hashes TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.enrol_token_hashes TO holdfast_gateway_agents;
GRANT SELECT,INSERT ON TABLE public.enrol_tokens TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.enrol_tokens TO holdfast_gateway_agents;
GRANT SELECT ON TABLE public.enrol_tokens TO holdfast_renderer;
GRANT SELECT ON TABLE public.enrol_tokens TO holdfast_reader;
GRANT UPDATE(uses) ON TABLE public.enrol_tokens TO holdfast_gateway_agents;
GRANT UPDATE(revoked_at) ON TABLE public.enrol_tokens TO holdfast_gateway_operators;
GRANT SELECT,INSERT ON TABLE public.event_order TO holdfast_renderer;
GRANT SELECT ON TABLE public.event_order TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.event_order TO holdfast_reader;
GRANT SELECT ON TABLE public.events TO holdfast_renderer;
GRANT SELECT ON TABLE public.events TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.events TO holdfast_reader;
GRANT INSERT(event_id) ON TABLE public.events TO holdfast_renderer;
GRANT INSERT(event_id) ON TABLE public.events TO holdfast_gateway_agents;
GRANT INSERT(event_id) ON TABLE public.events TO holdfast_gateway_operators;
GRANT INSERT(actor) ON TABLE public.events TO holdfast_renderer;
GRANT INSERT(actor) ON TABLE public.events TO holdfast_gateway_agents;
GRANT INSERT(actor) ON TABLE public.events TO holdfast_gateway_operators;
GRANT INSERT(kind) ON TABLE public.events TO holdfast_renderer;
GRANT INSERT(kind) ON TABLE public.events TO holdfast_gateway_agents;
GRANT INSERT(kind) ON TABLE public.events TO holdfast_gateway_operators;
GRANT INSERT(subjects) ON TABLE public.events TO holdfast_renderer;
GRANT INSERT(subjects) ON TABLE public.events TO holdfast_gateway_agents;
GRANT INSERT(subjects) ON TABLE public.events TO holdfast_gateway_operators;
GRANT INSERT(payload) ON TABLE public.events TO holdfast_renderer;
GRANT INSERT(payload) ON TABLE public.events TO holdfast_gateway_agents;
GRANT INSERT(payload) ON TABLE public.events TO holdfast_gateway_operators;
GRANT INSERT(causation) ON TABLE public.events TO holdfast_renderer;
GRANT INSERT(causation) ON TABLE public.events TO holdfast_gateway_agents;
GRANT INSERT(causation) ON TABLE public.events TO holdfast_gateway_operators;
GRANT INSERT(correlation) ON TABLE public.events TO holdfast_renderer;
GRANT INSERT(correlation) ON TABLE public.events TO holdfast_gateway_agents;
GRANT INSERT(correlation) ON TABLE public.events TO holdfast_gateway_operators;
GRANT SELECT,INSERT ON TABLE public.host_facts TO holdfast_renderer;
GRANT SELECT ON TABLE public.host_facts TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.host_facts TO holdfast_reader;
GRANT SELECT(host_id) ON TABLE public.host_facts TO holdfast_gateway_agents;
GRANT SELECT(addresses) ON TABLE public.host_facts TO holdfast_gateway_agents;
GRANT UPDATE(to_revision) ON TABLE public.host_facts TO holdfast_renderer;
GRANT SELECT(to_revision) ON TABLE public.host_facts TO holdfast_gateway_agents;
GRANT UPDATE(to_revision) ON TABLE public.host_facts TO holdfast_gateway_operators;
GRANT SELECT,INSERT ON TABLE public.hosts TO holdfast_renderer;
GRANT SELECT ON TABLE public.hosts TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.hosts TO holdfast_reader;
GRANT SELECT ON TABLE public.hosts TO holdfast_gateway_agents;
GRANT UPDATE(decommissioned_at) ON TABLE public.hosts TO holdfast_gateway_operators;
GRANT SELECT,INSERT,DELETE ON TABLE public.idempotency_keys TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.instances TO holdfast_renderer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.instances TO holdfast_gateway_agents;
GRANT SELECT,DELETE ON TABLE public.instances TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.instances TO holdfast_reader;
GRANT SELECT ON TABLE public.leases TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.leases TO holdfast_reader;
GRANT SELECT,INSERT,UPDATE ON TABLE public.leases TO holdfast_renderer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.leases TO holdfast_gateway_agents;
GRANT SELECT ON TABLE public.migrations TO PUBLIC;
GRANT SELECT ON TABLE public.objects TO holdfast_renderer;
GRANT SELECT,INSERT ON TABLE public.objects TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.objects TO holdfast_reader;
GRANT UPDATE(to_revision) ON TABLE public.objects TO holdfast_gateway_operators;
GRANT SELECT,INSERT ON TABLE public.observed TO holdfast_renderer;
GRANT SELECT,UPDATE ON TABLE public.observed TO holdfast_gateway_agents;
GRANT SELECT,DELETE ON TABLE public.observed TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.observed TO holdfast_reader;
GRANT SELECT ON TABLE public.operation_hosts TO holdfast_renderer;
GRANT SELECT,INSERT ON TABLE public.operation_hosts TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.operation_hosts TO holdfast_reader;
GRANT SELECT ON TABLE public.operations TO holdfast_renderer;
GRANT SELECT,INSERT ON TABLE public.operations TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.operations TO holdfast_reader;
GRANT UPDATE(state) ON TABLE public.operations TO holdfast_renderer;
GRANT UPDATE(state) ON TABLE public.operations TO holdfast_gateway_operators;
GRANT UPDATE(detail) ON TABLE public.operations TO holdfast_renderer;
GRANT UPDATE(detail) ON TABLE public.operations TO holdfast_gateway_operators;
GRANT UPDATE(finished_at) ON TABLE public.operations TO holdfast_renderer;
GRANT UPDATE(finished_at) ON TABLE public.operations TO holdfast_gateway_operators;
GRANT UPDATE(rendered_revision) ON TABLE public.operations TO holdfast_renderer;
GRANT UPDATE(rendered_at) ON TABLE public.operations TO holdfast_renderer;
GRANT SELECT ON TABLE public.presence TO holdfast_renderer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.presence TO holdfast_gateway_agents;
GRANT SELECT,DELETE ON TABLE public.presence TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.presence TO holdfast_reader;
GRANT SELECT ON TABLE public.pulse TO holdfast_renderer;
GRANT SELECT ON TABLE public.pulse TO holdfast_gateway_agents;
GRANT SELECT ON TABLE public.pulse TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.pulse TO holdfast_reader;
GRANT UPDATE(beat_at) ON TABLE public.pulse TO holdfast_gateway_agents;
GRANT UPDATE(beat_at) ON TABLE public.pulse TO holdfast_gateway_operators;
GRANT UPDATE(away_from) ON TABLE public.pulse TO holdfast_gateway_agents;
GRANT UPDATE(away_from) ON TABLE public.pulse TO holdfast_gateway_operators;
GRANT UPDATE(away_until) ON TABLE public.pulse TO holdfast_gateway_agents;
GRANT UPDATE(away_until) ON TABLE public.pulse TO holdfast_gateway_operators;
GRANT UPDATE(silent_from) ON TABLE public.pulse TO holdfast_gateway_agents;
GRANT UPDATE(silent_from) ON TABLE public.pulse TO holdfast_gateway_operators;
GRANT UPDATE(silent_until) ON TABLE public.pulse TO holdfast_gateway_agents;
GRANT UPDATE(silent_until) ON TABLE public.pulse TO holdfast_gateway_operators;
GRANT SELECT,INSERT,UPDATE ON TABLE public.render_progress TO holdfast_renderer;
GRANT SELECT ON TABLE public.render_progress TO holdfast_gateway_agents;
GRANT SELECT ON TABLE public.render_progress TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.render_progress TO holdfast_reader;
GRANT SELECT ON TABLE public.requests TO holdfast_renderer;
GRANT SELECT ON TABLE public.requests TO holdfast_gateway_agents;
GRANT SELECT ON TABLE public.requests TO holdfast_reader;
GRANT INSERT(request_id) ON TABLE public.requests TO holdfast_gateway_agents;
GRANT INSERT(kind) ON TABLE public.requests TO holdfast_gateway_agents;
GRANT UPDATE(state) ON TABLE public.requests TO holdfast_renderer;
GRANT INSERT(host_id) ON TABLE public.requests TO holdfast_gateway_agents;
GRANT INSERT(gateway_id) ON TABLE public.requests TO holdfast_gateway_agents;
GRANT INSERT(token_id) ON TABLE public.requests TO holdfast_gateway_agents;
GRANT INSERT(name) ON TABLE public.requests TO holdfast_gateway_agents;
GRANT INSERT(addresses) ON TABLE public.requests TO holdfast_gateway_agents;
GRANT INSERT(outcome_key) ON TABLE public.requests TO holdfast_gateway_agents;
GRANT INSERT(csr) ON TABLE public.requests TO holdfast_gateway_agents;
GRANT UPDATE(answered_at) ON TABLE public.requests TO holdfast_renderer;
GRANT UPDATE(refusal) ON TABLE public.requests TO holdfast_renderer;
GRANT UPDATE(certificate_chain) ON TABLE public.requests TO holdfast_renderer;
GRANT SELECT,INSERT ON TABLE public.revisions TO holdfast_renderer;
GRANT SELECT,INSERT ON TABLE public.revisions TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.revisions TO holdfast_reader;
GRANT SELECT ON TABLE public.rollout_hosts TO holdfast_renderer;
GRANT SELECT,INSERT ON TABLE public.rollout_hosts TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.rollout_hosts TO holdfast_reader;
GRANT SELECT ON TABLE public.rollouts TO holdfast_renderer;
GRANT SELECT,INSERT ON TABLE public.rollouts TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.rollouts TO holdfast_reader;
GRANT UPDATE(stage) ON TABLE public.rollouts TO holdfast_gateway_operators;
GRANT UPDATE(state) ON TABLE public.rollouts TO holdfast_gateway_operators;
GRANT UPDATE(detail) ON TABLE public.rollouts TO holdfast_gateway_operators;
GRANT UPDATE(stage_began_at) ON TABLE public.rollouts TO holdfast_gateway_operators;
GRANT UPDATE(finished_at) ON TABLE public.rollouts TO holdfast_gateway_operators;
GRANT UPDATE(abort_revision) ON TABLE public.rollouts TO holdfast_gateway_operators;
GRANT UPDATE(version) ON TABLE public.rollouts TO holdfast_gateway_operators;
GRANT UPDATE(halt_reason) ON TABLE public.rollouts TO holdfast_gateway_operators;
GRANT UPDATE(excused_stage) ON TABLE public.rollouts TO holdfast_gateway_operators;
GRANT SELECT,INSERT ON TABLE public.sessions TO holdfast_renderer;
GRANT SELECT,UPDATE ON TABLE public.sessions TO holdfast_gateway_agents;
GRANT SELECT,DELETE ON TABLE public.sessions TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.sessions TO holdfast_reader;
GRANT SELECT ON TABLE public.statuses TO holdfast_renderer;
GRANT SELECT,INSERT,UPDATE ON TABLE public.statuses TO holdfast_gateway_agents;
GRANT SELECT,DELETE ON TABLE public.statuses TO holdfast_gateway_operators;
GRANT SELECT ON TABLE public.statuses TO holdfast_reader;
