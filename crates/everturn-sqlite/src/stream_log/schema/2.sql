-- How many bytes a stream takes, and which owner's they are.
ALTER TABLE stream ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE stream ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE stream SET
    owner = scope,
    bytes = (SELECT coalesce(sum(length(CAST(batch.body AS BLOB))), 0) FROM batch WHERE batch.stream = stream.key)
        + coalesce(length(CAST(stream.body AS BLOB)), 0);
CREATE INDEX stream_by_owner ON stream (owner, expires_at) WHERE expires_at IS NOT NULL;

-- The bytes of each owner's streams. Triggers keep the sums, whichever statement changes a stream.
CREATE TABLE owner (
    name TEXT PRIMARY KEY,
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO owner SELECT owner, sum(bytes) FROM stream GROUP BY owner;

-- The bytes of all streams, in one row.
CREATE TABLE total (
    key INTEGER PRIMARY KEY CHECK (key = 1),
    bytes INTEGER NOT NULL
) STRICT;
INSERT INTO total SELECT 1, coalesce(sum(bytes), 0) FROM stream;

CREATE TRIGGER stream_comes AFTER INSERT ON stream BEGIN
    INSERT INTO owner VALUES (NEW.owner, NEW.bytes) ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
    UPDATE total SET bytes = bytes + NEW.bytes;
END;
CREATE TRIGGER stream_grows AFTER UPDATE OF bytes ON stream BEGIN
    UPDATE owner SET bytes = bytes + NEW.bytes - OLD.bytes WHERE name = NEW.owner;
    UPDATE total SET bytes = bytes + NEW.bytes - OLD.bytes;
END;
CREATE TRIGGER stream_goes AFTER DELETE ON stream BEGIN
    UPDATE owner SET bytes = bytes - OLD.bytes WHERE name = OLD.owner;
    DELETE FROM owner WHERE name = OLD.owner AND bytes <= 0;
    UPDATE total SET bytes = bytes - OLD.bytes;
END;
