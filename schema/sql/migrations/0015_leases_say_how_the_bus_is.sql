-- What the holder of the renderer's lease says of the bus, for people: what is wrong with each stream, and how far it has carried the events.
ALTER TABLE leases ADD COLUMN IF NOT EXISTS hint_fault text CHECK (octet_length(hint_fault) <= 256);
ALTER TABLE leases ADD COLUMN IF NOT EXISTS event_fault text CHECK (octet_length(event_fault) <= 256);
ALTER TABLE leases ADD COLUMN IF NOT EXISTS relayed_epoch bigint;
ALTER TABLE leases ADD COLUMN IF NOT EXISTS relayed_seq bigint;
