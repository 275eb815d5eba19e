-- The last three bits of a stream's key are its slot, by the time at which the stream began, and chunks are kept by slots. Of a
-- slot without streams everything is dropped at once, whatever its size. The slots come round again.
DROP TABLE chunk;
DELETE FROM stream;
ALTER TABLE stream ALTER COLUMN key DROP IDENTITY;
CREATE INDEX stream_by_slot ON stream ((key & 7));
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
