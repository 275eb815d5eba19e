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
