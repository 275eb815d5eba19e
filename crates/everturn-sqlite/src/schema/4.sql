-- Checksums of what a reader is given. Rows of earlier versions have none until the rows named here have got theirs.
ALTER TABLE message ADD COLUMN checksum INTEGER;
ALTER TABLE document ADD COLUMN checksum INTEGER;
ALTER TABLE lineage ADD COLUMN checksum INTEGER;
ALTER TABLE snapshot ADD COLUMN checksum INTEGER;
ALTER TABLE journal ADD COLUMN checksum INTEGER;

-- The tables with rows without a checksum: those with keys after `done`, up to `last`.
CREATE TABLE unchecked (
    name TEXT PRIMARY KEY,
    done INTEGER NOT NULL,
    last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO unchecked SELECT 'message', -1, max(key) FROM message HAVING count(*) > 0;
INSERT INTO unchecked SELECT 'document', -1, max(key) FROM document HAVING count(*) > 0;
INSERT INTO unchecked SELECT 'lineage', -1, max(key) FROM lineage HAVING count(*) > 0;
INSERT INTO unchecked SELECT 'snapshot', -1, max(key) FROM snapshot HAVING count(*) > 0;
