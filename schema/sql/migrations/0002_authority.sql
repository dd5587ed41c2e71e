-- The lineage of this database and which of its lives this is: one row.
CREATE TABLE IF NOT EXISTS authority (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    authority_id uuid NOT NULL,
    authority_epoch bigint NOT NULL CHECK (authority_epoch > 0),
    created_at timestamptz NOT NULL
);
