-- A host that lost the answer to its enrolment asks again with the same key, and finds the request that is there.
CREATE INDEX IF NOT EXISTS requests_of_key ON requests (outcome_key) WHERE kind = 'enrolment';
