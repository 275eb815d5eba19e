-- Tenants. A row is deleted with its last session. `tenant` is the readable name of a tenant whose name is a hash; NULL if
-- the name is not a hash or no readable name was given.
CREATE TABLE scope (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    tenant TEXT
) STRICT;

CREATE TABLE session (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL REFERENCES scope (key),
    name TEXT NOT NULL,
    UNIQUE (scope, name)
) STRICT;

-- The latest snapshot of every session, in the order in which sessions are listed.
CREATE TABLE tip (
    scope INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    id TEXT NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (scope, created_at, id)
) STRICT, WITHOUT ROWID;

-- A line of messages, possibly forked from another after its first `base` messages. A key is never used twice, and a
-- lineage that lost messages is closed, so a (lineage, position) never refers to a different message.
CREATE TABLE lineage (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    parent INTEGER REFERENCES lineage (key),
    base INTEGER NOT NULL,
    open INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
CREATE INDEX lineage_by_parent ON lineage (parent, base) WHERE parent IS NOT NULL;

-- The key is lineage * 2^24 + position, so a lineage's messages are adjacent and the table needs no index.
-- A text body is JSON; a blob body is JSON compressed with zstd. `cuts` counts the strings that were cut out.
-- Checksums cover the decompressed text with its strings and patches applied.
CREATE TABLE message (
    key INTEGER PRIMARY KEY,
    cuts INTEGER NOT NULL,
    body ANY NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

-- JSON documents: custom state, artifacts, prompt inputs. With a base, the body is a patch on that document.
CREATE TABLE document (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    base INTEGER REFERENCES document (key),
    depth INTEGER NOT NULL,
    cuts INTEGER NOT NULL,
    body ANY NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
CREATE INDEX document_by_base ON document (base) WHERE base IS NOT NULL;

-- Long strings by their hash, and where in which body they belong.
CREATE TABLE blob (
    key INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    body ANY NOT NULL
) STRICT;
CREATE TABLE message_blob (
    message INTEGER NOT NULL REFERENCES message (key),
    offset INTEGER NOT NULL,
    blob INTEGER NOT NULL REFERENCES blob (key),
    PRIMARY KEY (message, offset)
) STRICT, WITHOUT ROWID;
CREATE INDEX message_blob_by_blob ON message_blob (blob);
CREATE TABLE document_blob (
    document INTEGER NOT NULL REFERENCES document (key),
    offset INTEGER NOT NULL,
    blob INTEGER NOT NULL REFERENCES blob (key),
    PRIMARY KEY (document, offset)
) STRICT, WITHOUT ROWID;
CREATE INDEX document_blob_by_blob ON document_blob (blob);

-- Times are nanoseconds since 1970. `details` and `rest` are JSON and mostly absent. Without `up_to` there is no state;
-- an empty history has no lineage. `named` says that the state repeats the session's id.
CREATE TABLE snapshot (
    key INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL,
    id TEXT NOT NULL,
    session INTEGER NOT NULL REFERENCES session (key),
    parent TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER,
    heartbeat_at INTEGER,
    status TEXT NOT NULL,
    finish_reason TEXT,
    event TEXT,
    number INTEGER,
    turn INTEGER,
    orphaned INTEGER NOT NULL,
    details TEXT,
    lineage INTEGER REFERENCES lineage (key),
    up_to INTEGER,
    custom INTEGER REFERENCES document (key),
    artifacts INTEGER REFERENCES document (key),
    prompt_input INTEGER REFERENCES document (key),
    named INTEGER NOT NULL,
    rest TEXT,
    checksum INTEGER NOT NULL,
    UNIQUE (scope, id)
) STRICT;
CREATE INDEX snapshot_by_position ON snapshot (session, created_at, id, orphaned);
CREATE INDEX snapshot_by_parent ON snapshot (scope, parent) WHERE parent IS NOT NULL;
CREATE INDEX snapshot_by_lineage ON snapshot (lineage, up_to) WHERE lineage IS NOT NULL;
CREATE INDEX snapshot_by_custom ON snapshot (custom) WHERE custom IS NOT NULL;
CREATE INDEX snapshot_by_artifacts ON snapshot (artifacts) WHERE artifacts IS NOT NULL;
CREATE INDEX snapshot_by_prompt_input ON snapshot (prompt_input) WHERE prompt_input IS NOT NULL;
-- Background runs that have not ended: few, whatever the number of snapshots. The index includes the heartbeats, so that a
-- query for silent runs reads no other row.
CREATE INDEX snapshot_pending ON snapshot (created_at, id, scope, heartbeat_at) WHERE status = 'pending';

-- Records of turns that have not ended. A session may not have a row yet, so tenant and session are stored by name.
CREATE TABLE journal (
    key INTEGER PRIMARY KEY,
    scope TEXT NOT NULL,
    session TEXT NOT NULL,
    turn TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    added_at INTEGER NOT NULL,
    body ANY NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (scope, session, turn, sequence)
) STRICT;
CREATE INDEX journal_by_age ON journal (added_at);

-- The locks of turns in progress, and the turns that wait for them, in the order of their numbers. A place is a branch of
-- the session, or all of it. Times are nanoseconds since 1970.
CREATE TABLE turn_lock (
    scope TEXT NOT NULL,
    session TEXT NOT NULL,
    place TEXT NOT NULL,
    turn TEXT NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (scope, session, place)
) STRICT, WITHOUT ROWID;
CREATE TABLE turn_queue (
    number INTEGER PRIMARY KEY,
    scope TEXT NOT NULL,
    session TEXT NOT NULL,
    turn TEXT NOT NULL,
    place TEXT NOT NULL,
    until INTEGER NOT NULL,
    UNIQUE (scope, session, turn)
) STRICT;

-- The usage of tenants, and of turns that no snapshot contains yet. A tenant's own row has an empty session and turn.
-- `base` is the snapshot that the turn continues, or empty. `used` is JSON.
CREATE TABLE ledger (
    scope TEXT NOT NULL,
    session TEXT NOT NULL,
    turn TEXT NOT NULL,
    base TEXT NOT NULL,
    used TEXT NOT NULL,
    PRIMARY KEY (scope, session, turn)
) STRICT, WITHOUT ROWID;
