-- What tenants have used, and what turns have used that no snapshot holds yet. The account of a tenant is that of the session
-- and the turn with empty names. `base` is the snapshot that the turn continues, or the empty name. `used` is JSON.
CREATE TABLE ledger (
    tenant integer NOT NULL,
    session uuid NOT NULL,
    turn bytea NOT NULL,
    scope bytea NOT NULL,
    base bytea NOT NULL,
    used text NOT NULL,
    PRIMARY KEY (tenant, session, turn)
) WITH (fillfactor = 50);

-- The readable names of tenants whose scopes are hashes. A name goes with the tenant's last session.
CREATE TABLE tenant_name (
    tenant integer NOT NULL,
    scope bytea NOT NULL,
    name bytea NOT NULL,
    PRIMARY KEY (tenant, scope)
);
