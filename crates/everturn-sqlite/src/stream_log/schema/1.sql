-- Writing processes. A process that has not renewed its lease in time counts as dead. Times are milliseconds since 1970.
CREATE TABLE writer (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    lease_until INTEGER NOT NULL
) STRICT;
CREATE INDEX writer_by_lease ON writer (lease_until);

-- A stream in progress has a writer; a finished stream has an end (`done`, `failed`, `lost`) and an expiry. `written` counts
-- its chunks. A key is never used twice, so a reader by key never sees another stream of the same name. `bytes` is the size
-- of the stream, which counts for its owner. `tenant` and `session` name the subject with which the stream is erased.
-- `checksum` covers the end.
CREATE TABLE stream (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    scope TEXT NOT NULL,
    id TEXT NOT NULL,
    written INTEGER NOT NULL,
    writer INTEGER REFERENCES writer (key),
    stop INTEGER NOT NULL,
    end TEXT,
    body TEXT,
    expires_at INTEGER,
    owner TEXT NOT NULL,
    bytes INTEGER NOT NULL DEFAULT 0,
    checksum INTEGER,
    tenant TEXT NOT NULL,
    session TEXT,
    UNIQUE (scope, id)
) STRICT;
CREATE INDEX stream_by_writer ON stream (writer) WHERE writer IS NOT NULL;
CREATE INDEX stream_by_expiry ON stream (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX stream_by_owner ON stream (owner, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX stream_by_subject ON stream (tenant, session);

-- Chunks that were written together: one line of JSON each. `last` is the position of the last.
CREATE TABLE batch (
    key INTEGER PRIMARY KEY,
    stream INTEGER NOT NULL REFERENCES stream (key) ON DELETE CASCADE,
    last INTEGER NOT NULL,
    body TEXT NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (stream, last)
) STRICT;

-- The bytes of each owner's streams. Triggers update the sums, whichever statement changes a stream.
CREATE TABLE owner (
    name TEXT PRIMARY KEY,
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The bytes of all streams, in one row.
CREATE TABLE total (
    key INTEGER PRIMARY KEY CHECK (key = 1),
    bytes INTEGER NOT NULL
) STRICT;
INSERT INTO total VALUES (1, 0);

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
