-- sessions
PRAGMA application_id = 1165382766
PRAGMA user_version = 1
PRAGMA journal_mode = wal
CREATE TABLE blob (
    key INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    body ANY NOT NULL
) STRICT;
CREATE TABLE document (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    base INTEGER REFERENCES document (key),
    depth INTEGER NOT NULL,
    cuts INTEGER NOT NULL,
    body ANY NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
CREATE TABLE document_blob (
    document INTEGER NOT NULL REFERENCES document (key),
    offset INTEGER NOT NULL,
    blob INTEGER NOT NULL REFERENCES blob (key),
    PRIMARY KEY (document, offset)
) STRICT, WITHOUT ROWID;
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
CREATE TABLE ledger (
    scope TEXT NOT NULL,
    session TEXT NOT NULL,
    turn TEXT NOT NULL,
    base TEXT NOT NULL,
    used TEXT NOT NULL,
    PRIMARY KEY (scope, session, turn)
) STRICT, WITHOUT ROWID;
CREATE TABLE lineage (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    parent INTEGER REFERENCES lineage (key),
    base INTEGER NOT NULL,
    open INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
CREATE TABLE message (
    key INTEGER PRIMARY KEY,
    cuts INTEGER NOT NULL,
    body ANY NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
CREATE TABLE message_blob (
    message INTEGER NOT NULL REFERENCES message (key),
    offset INTEGER NOT NULL,
    blob INTEGER NOT NULL REFERENCES blob (key),
    PRIMARY KEY (message, offset)
) STRICT, WITHOUT ROWID;
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
CREATE TABLE sqlite_sequence(name,seq);
CREATE TABLE tip (
    scope INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    id TEXT NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (scope, created_at, id)
) STRICT, WITHOUT ROWID;
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
CREATE INDEX document_blob_by_blob ON document_blob (blob);
CREATE INDEX document_by_base ON document (base) WHERE base IS NOT NULL;
CREATE INDEX journal_by_age ON journal (added_at);
CREATE INDEX lineage_by_parent ON lineage (parent, base) WHERE parent IS NOT NULL;
CREATE INDEX message_blob_by_blob ON message_blob (blob);
CREATE INDEX snapshot_by_artifacts ON snapshot (artifacts) WHERE artifacts IS NOT NULL;
CREATE INDEX snapshot_by_custom ON snapshot (custom) WHERE custom IS NOT NULL;
CREATE INDEX snapshot_by_lineage ON snapshot (lineage, up_to) WHERE lineage IS NOT NULL;
CREATE INDEX snapshot_by_parent ON snapshot (scope, parent) WHERE parent IS NOT NULL;
CREATE INDEX snapshot_by_position ON snapshot (session, created_at, id, orphaned);
CREATE INDEX snapshot_by_prompt_input ON snapshot (prompt_input) WHERE prompt_input IS NOT NULL;
CREATE INDEX snapshot_pending ON snapshot (created_at, id, scope, heartbeat_at) WHERE status = 'pending';
-- sqlite_autoindex_blob_1;
-- sqlite_autoindex_journal_1;
-- sqlite_autoindex_scope_1;
-- sqlite_autoindex_session_1;
-- sqlite_autoindex_snapshot_1;
-- sqlite_autoindex_turn_queue_1;
-- streams
PRAGMA application_id = 1165382516
PRAGMA user_version = 1
PRAGMA journal_mode = wal
CREATE TRIGGER stream_comes AFTER INSERT ON stream BEGIN
    INSERT INTO owner VALUES (NEW.owner, NEW.bytes) ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
    UPDATE total SET bytes = bytes + NEW.bytes;
END;
CREATE TRIGGER stream_goes AFTER DELETE ON stream BEGIN
    UPDATE owner SET bytes = bytes - OLD.bytes WHERE name = OLD.owner;
    DELETE FROM owner WHERE name = OLD.owner AND bytes <= 0;
    UPDATE total SET bytes = bytes - OLD.bytes;
END;
CREATE TRIGGER stream_grows AFTER UPDATE OF bytes ON stream BEGIN
    UPDATE owner SET bytes = bytes + NEW.bytes - OLD.bytes WHERE name = NEW.owner;
    UPDATE total SET bytes = bytes + NEW.bytes - OLD.bytes;
END;
CREATE TABLE batch (
    key INTEGER PRIMARY KEY,
    stream INTEGER NOT NULL REFERENCES stream (key) ON DELETE CASCADE,
    last INTEGER NOT NULL,
    body TEXT NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (stream, last)
) STRICT;
CREATE TABLE owner (
    name TEXT PRIMARY KEY,
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE sqlite_sequence(name,seq);
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
CREATE TABLE total (
    key INTEGER PRIMARY KEY CHECK (key = 1),
    bytes INTEGER NOT NULL
) STRICT;
CREATE TABLE writer (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    lease_until INTEGER NOT NULL
) STRICT;
-- sqlite_autoindex_batch_1;
-- sqlite_autoindex_stream_1;
CREATE INDEX stream_by_expiry ON stream (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX stream_by_owner ON stream (owner, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX stream_by_subject ON stream (tenant, session);
CREATE INDEX stream_by_writer ON stream (writer) WHERE writer IS NOT NULL;
CREATE INDEX writer_by_lease ON writer (lease_until);
