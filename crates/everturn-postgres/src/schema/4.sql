-- Checksums of rows and of the columns that identify them. Rows of earlier versions have none: theirs is 0 and is
-- not compared. A session's versions are all random now, so that a database that was restored to an earlier point
-- never comes back to one that it had.

-- Covers the message's text and place, and the checksum of the message before it. Its upper half is random for
-- each commit.
ALTER TABLE message ADD COLUMN checksum bigint NOT NULL DEFAULT 0;
-- Covers the full text.
ALTER TABLE document ADD COLUMN checksum bigint NOT NULL DEFAULT 0;
ALTER TABLE lineage ADD COLUMN checksum bigint NOT NULL DEFAULT 0;
ALTER TABLE journal ADD COLUMN checksum bigint NOT NULL DEFAULT 0;
-- Covers the whole row, its scope, its id and its session's name. `tail` is the checksum of the history's last
-- message.
ALTER TABLE snapshot ADD COLUMN checksum bigint NOT NULL DEFAULT 0;
ALTER TABLE snapshot ADD COLUMN tail bigint;

-- The readable names of tenants whose scopes are hashes. A name goes with the tenant's last session.
CREATE TABLE tenant_name (
    tenant integer NOT NULL,
    scope bytea NOT NULL,
    name bytea NOT NULL,
    PRIMARY KEY (tenant, scope)
);
