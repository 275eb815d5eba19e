-- sessions
BEGIN;
DO $everturn$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = 'everturn') THEN CREATE SCHEMA "everturn"; END IF; END $everturn$;
SET LOCAL search_path TO "everturn";
CREATE TABLE IF NOT EXISTS everturn_schema (version integer NOT NULL);
-- Every key begins with the tenant, a hash of the scope's name that only places rows, and then the session: tables can be
-- partitioned by hash, or distributed, without changing a query. A session's key is a hash of its scope and name.
-- Names, ids and bodies are bytes: text refuses U+0000, and sorts as the database's locale says.
-- Times are nanoseconds since 1970.

-- One row per session. A writer compares and sets the version, so all writes of a session are serialised. Versions are
-- random: a session that is deleted and created again, or restored to an earlier point, never repeats a version.
-- `tokens` names the last commits, newest first, for a writer whose connection broke before it received the answer.
CREATE TABLE session (
    tenant integer NOT NULL,
    key uuid NOT NULL,
    version bigint NOT NULL,
    tip_at bigint,
    touched_at bigint NOT NULL,
    tip bytea,
    scope bytea NOT NULL,
    name bytea NOT NULL,
    tokens bigint[] NOT NULL,
    PRIMARY KEY (tenant, key)
) WITH (fillfactor = 70);
CREATE INDEX session_by_tip ON session (tenant, scope, tip_at, tip) WHERE tip IS NOT NULL;
-- Sessions that have a journal and no snapshot.
CREATE INDEX session_empty ON session (touched_at) WHERE tip IS NULL;

-- A line of messages, possibly forked from another, of this or another session, after its first `base` messages. Its number
-- is the version that wrote it, so none is used twice. A lineage that lost its messages from `cut` on is not appended to
-- again. So a position never refers to a different message.
CREATE TABLE lineage (
    tenant integer NOT NULL,
    base integer NOT NULL,
    number bigint NOT NULL,
    checksum bigint NOT NULL,
    parent bigint,
    session uuid NOT NULL,
    parent_session uuid,
    cut integer,
    PRIMARY KEY (tenant, session, number)
);
CREATE INDEX lineage_by_parent ON lineage (tenant, parent_session, parent) WHERE parent IS NOT NULL;

-- The first byte of a body is its encoding, the next four are a checksum of the stored bytes. `cuts` counts the strings that
-- were cut out. The column `checksum` covers the message's text and position, and the checksum of the message before it. Its
-- upper half is random for each commit.
CREATE TABLE message (
    lineage bigint NOT NULL,
    checksum bigint NOT NULL,
    tenant integer NOT NULL,
    number integer NOT NULL,
    session uuid NOT NULL,
    cuts integer NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, session, lineage, number)
);

-- JSON documents: custom state, artifacts, prompt inputs. With a base, the body is a patch on that document. The checksum
-- covers the full text.
CREATE TABLE document (
    number bigint NOT NULL,
    checksum bigint NOT NULL,
    tenant integer NOT NULL,
    depth integer NOT NULL,
    base bigint,
    session uuid NOT NULL,
    cuts integer NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, session, number)
);
CREATE INDEX document_by_base ON document (tenant, session, base) WHERE base IS NOT NULL;

-- Long strings by their hash, and where in which body they belong.
CREATE TABLE blob (
    tenant integer NOT NULL,
    session uuid NOT NULL,
    hash bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, session, hash)
);
CREATE TABLE message_blob (
    lineage bigint NOT NULL,
    tenant integer NOT NULL,
    number integer NOT NULL,
    session uuid NOT NULL,
    place integer NOT NULL,
    hash bytea NOT NULL,
    PRIMARY KEY (tenant, session, lineage, number, place)
);
CREATE INDEX message_blob_by_hash ON message_blob (tenant, session, hash);
CREATE TABLE document_blob (
    number bigint NOT NULL,
    tenant integer NOT NULL,
    place integer NOT NULL,
    session uuid NOT NULL,
    hash bytea NOT NULL,
    PRIMARY KEY (tenant, session, number, place)
);
CREATE INDEX document_blob_by_hash ON document_blob (tenant, session, hash);

-- `details` and `rest` are JSON and mostly absent. Without `up_to` there is no state; an empty history has no lineage.
-- `line_session` is the session of the lineage if that is not the snapshot's own. `tail` is the checksum of the history's last
-- message. `named` is whether the state repeats the session's id. The checksum covers the whole row, its scope, its id and its
-- session's name.
CREATE TABLE snapshot (
    tenant integer NOT NULL,
    up_to integer,
    checksum bigint NOT NULL,
    tail bigint,
    lineage bigint,
    custom bigint,
    artifacts bigint,
    prompt_input bigint,
    created_at bigint NOT NULL,
    updated_at bigint,
    heartbeat_at bigint,
    number bigint,
    turn bigint,
    session uuid NOT NULL,
    line_session uuid,
    orphaned boolean NOT NULL,
    named boolean NOT NULL,
    status text NOT NULL,
    finish_reason text,
    event text,
    scope bytea NOT NULL,
    id bytea NOT NULL,
    parent bytea,
    details bytea,
    rest bytea,
    PRIMARY KEY (tenant, scope, id)
) WITH (fillfactor = 90);
CREATE INDEX snapshot_by_position ON snapshot (tenant, session, created_at, id);
CREATE INDEX snapshot_by_parent ON snapshot (tenant, scope, parent) WHERE parent IS NOT NULL;
CREATE INDEX snapshot_by_other_lineage ON snapshot (tenant, line_session, lineage) WHERE line_session IS NOT NULL;
-- Background runs that have not ended: few, whatever the number of snapshots.
CREATE INDEX snapshot_pending ON snapshot (created_at, id, scope) WHERE status = 'pending';

-- Records of turns that have not ended.
CREATE TABLE journal (
    tenant integer NOT NULL,
    session uuid NOT NULL,
    sequence bigint NOT NULL,
    added_at bigint NOT NULL,
    token bigint NOT NULL,
    checksum bigint NOT NULL,
    turn bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, session, turn, sequence)
);
CREATE INDEX journal_by_age ON journal (added_at);

-- Tasks that one worker at a time carries out, and when each is due again.
CREATE TABLE maintenance (
    name bytea PRIMARY KEY,
    due_at bigint NOT NULL
);

-- The locks of turns in progress, one for each place: a branch of the session, or all of it. The database's clock decides
-- when a lock has lapsed. Taking a lock over from another turn changes the session's version, so that the other turn's
-- pending writes are checked again.
CREATE TABLE turn_lock (
    tenant integer NOT NULL,
    session uuid NOT NULL,
    until bigint NOT NULL,
    place bytea NOT NULL,
    turn bytea NOT NULL,
    PRIMARY KEY (tenant, session, place)
) WITH (fillfactor = 70);

-- The turns that wait for a lock, in the order of their numbers.
CREATE TABLE turn_queue (
    tenant integer NOT NULL,
    session uuid NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    until bigint NOT NULL,
    turn bytea NOT NULL,
    place bytea NOT NULL,
    PRIMARY KEY (tenant, session, turn)
) WITH (fillfactor = 70);

-- The usage of tenants, and of turns that no snapshot contains yet. A tenant's own row has an empty session and turn.
-- `base` is the snapshot that the turn continues, or empty. `used` is JSON.
CREATE TABLE ledger (
    tenant integer NOT NULL,
    session uuid NOT NULL,
    turn bytea NOT NULL,
    scope bytea NOT NULL,
    base bytea NOT NULL,
    used text NOT NULL,
    PRIMARY KEY (tenant, session, turn)
) WITH (fillfactor = 50);

-- The readable names of tenants whose scopes are hashes. A name is deleted with the tenant's last session.
CREATE TABLE tenant_name (
    tenant integer NOT NULL,
    scope bytea NOT NULL,
    name bytea NOT NULL,
    PRIMARY KEY (tenant, scope)
);

-- Bodies are compressed before they are stored.
ALTER TABLE message ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE document ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE blob ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE journal ALTER COLUMN body SET STORAGE EXTERNAL;

DELETE FROM everturn_schema;
INSERT INTO everturn_schema (version) VALUES (1);
COMMIT;

-- streams
BEGIN;
DO $everturn$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = 'everturn') THEN CREATE SCHEMA "everturn"; END IF; END $everturn$;
SET LOCAL search_path TO "everturn";
CREATE TABLE IF NOT EXISTS everturn_schema (version integer NOT NULL);
-- Streams. Times are nanoseconds since 1970. A stream without an end is being written, by a process that renews its lease.
-- The last three bits of a stream's key are its slot, by the time at which the stream began. `tenant` and `session` name the
-- subject with which the stream is erased.
CREATE TABLE stream (
    key bigint PRIMARY KEY,
    lease_until bigint NOT NULL,
    finished_at bigint,
    stopped boolean NOT NULL DEFAULT false,
    scope bytea NOT NULL,
    id bytea NOT NULL,
    ending bytea,
    tenant bytea NOT NULL,
    session bytea,
    UNIQUE (scope, id)
);
CREATE INDEX stream_by_end ON stream (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX stream_by_lease ON stream (lease_until) WHERE finished_at IS NULL;
CREATE INDEX stream_by_slot ON stream ((key & 7));
CREATE INDEX stream_by_subject ON stream (tenant, session);

-- Chunks that were written together: a JSON array of their texts, the first of which has this position. Chunks are partitioned
-- by slots. The chunks of a slot without streams are dropped at once, whatever their size. Slots are used in rotation.
CREATE TABLE chunk (
    stream bigint NOT NULL,
    first bigint NOT NULL,
    slot smallint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (slot, stream, first)
) PARTITION BY LIST (slot);
CREATE TABLE chunk_0 PARTITION OF chunk FOR VALUES IN (0);
CREATE TABLE chunk_1 PARTITION OF chunk FOR VALUES IN (1);
CREATE TABLE chunk_2 PARTITION OF chunk FOR VALUES IN (2);
CREATE TABLE chunk_3 PARTITION OF chunk FOR VALUES IN (3);
CREATE TABLE chunk_4 PARTITION OF chunk FOR VALUES IN (4);
CREATE TABLE chunk_5 PARTITION OF chunk FOR VALUES IN (5);
CREATE TABLE chunk_6 PARTITION OF chunk FOR VALUES IN (6);
CREATE TABLE chunk_7 PARTITION OF chunk FOR VALUES IN (7);
ALTER TABLE chunk_0 ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE chunk_1 ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE chunk_2 ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE chunk_3 ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE chunk_4 ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE chunk_5 ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE chunk_6 ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE chunk_7 ALTER COLUMN body SET STORAGE EXTERNAL;

DELETE FROM everturn_schema;
INSERT INTO everturn_schema (version) VALUES (1);
COMMIT;
