-- Processes that write. One that has not renewed its lease in time is taken for dead. Times are milliseconds since 1970.
CREATE TABLE writer (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    lease_until INTEGER NOT NULL
) STRICT;
CREATE INDEX writer_by_lease ON writer (lease_until);

-- While it is written a stream has a writer; then it has an end (`done`, `failed`, `lost`) and a time to go. `written`
-- counts its chunks. A key is never used twice, so whoever reads by key never sees another stream of the same name.
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
    UNIQUE (scope, id)
) STRICT;
CREATE INDEX stream_by_writer ON stream (writer) WHERE writer IS NOT NULL;
CREATE INDEX stream_by_expiry ON stream (expires_at) WHERE expires_at IS NOT NULL;

-- Chunks that were written together: one line of JSON each. `last` is the position of the last.
CREATE TABLE batch (
    key INTEGER PRIMARY KEY,
    stream INTEGER NOT NULL REFERENCES stream (key) ON DELETE CASCADE,
    last INTEGER NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (stream, last)
) STRICT;
