-- Streams. Times are nanoseconds since 1970. A stream without an end is being written, by a process that renews its lease.
CREATE TABLE stream (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lease_until bigint NOT NULL,
    finished_at bigint,
    stopped boolean NOT NULL DEFAULT false,
    scope bytea NOT NULL,
    id bytea NOT NULL,
    ending bytea,
    UNIQUE (scope, id)
);
CREATE INDEX stream_by_end ON stream (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX stream_by_lease ON stream (lease_until) WHERE finished_at IS NULL;

-- Chunks that were written together: a JSON array of their texts, the first of which has this position.
CREATE TABLE chunk (
    stream bigint NOT NULL,
    first bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (stream, first)
);
ALTER TABLE chunk ALTER COLUMN body SET STORAGE EXTERNAL;
