-- What tenants have used, and what turns have used that no snapshot holds yet. The account of a tenant has the empty names of
-- a session and a turn. `base` is the snapshot that the turn continues, or the empty name. `used` is JSON.
CREATE TABLE ledger (
    scope TEXT NOT NULL,
    session TEXT NOT NULL,
    turn TEXT NOT NULL,
    base TEXT NOT NULL,
    used TEXT NOT NULL,
    PRIMARY KEY (scope, session, turn)
) STRICT, WITHOUT ROWID;
