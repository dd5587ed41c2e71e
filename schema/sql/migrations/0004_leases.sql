-- Who may act alone, and until when. `expires_at` is renewed without an event; holder and term change with one.
CREATE TABLE IF NOT EXISTS leases (
    name text PRIMARY KEY,
    holder text NOT NULL,
    term bigint NOT NULL CHECK (term > 0),
    expires_at timestamptz NOT NULL,
    -- Makes the term part of a key: a new term waits for transactions that have locked the row FOR KEY SHARE, a renewal does not.
    UNIQUE (name, term)
);
