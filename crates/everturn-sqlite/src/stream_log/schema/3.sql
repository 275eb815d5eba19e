-- Checksums of batches and of the ends of streams. Those of earlier versions have none, and are gone soon.
ALTER TABLE batch ADD COLUMN checksum INTEGER;
ALTER TABLE stream ADD COLUMN checksum INTEGER;
