-- Content by its digest. Compression would cost a third of the write rate on real policies, for bytes that are shared anyway.
CREATE TABLE IF NOT EXISTS artifacts (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    bytes bytea NOT NULL
);
ALTER TABLE artifacts ALTER COLUMN bytes SET STORAGE EXTERNAL;
