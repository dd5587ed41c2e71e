-- What happened. Rows are only ever added: by permission, and by a trigger that stops the owner too.
CREATE TABLE IF NOT EXISTS events (
    -- Unique and rising within a transaction; neither dense nor an order across transactions.
    lid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id uuid NOT NULL UNIQUE,
    -- The transaction that wrote it: what is numbered together.
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at timestamptz NOT NULL DEFAULT transaction_timestamp(),
    actor text NOT NULL,
    kind text NOT NULL,
    subjects text[] NOT NULL,
    payload jsonb NOT NULL,
    causation uuid,
    correlation uuid
);
CREATE INDEX IF NOT EXISTS events_xid ON events (xid);

-- The place of each event in the audit order, dense within an epoch.
CREATE TABLE IF NOT EXISTS event_order (
    authority_epoch bigint NOT NULL CHECK (authority_epoch > 0),
    seq bigint NOT NULL CHECK (seq > 0),
    event_id uuid NOT NULL UNIQUE,
    PRIMARY KEY (authority_epoch, seq)
);

CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are only ever added', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE OR REPLACE TRIGGER events_only_added
    BEFORE UPDATE OR DELETE OR TRUNCATE ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE OR REPLACE TRIGGER event_order_only_added
    BEFORE UPDATE OR DELETE OR TRUNCATE ON event_order FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
