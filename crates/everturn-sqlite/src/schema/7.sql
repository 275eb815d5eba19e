-- The readable name of a tenant whose name is a hash; NULL if it is none, or was never given.
ALTER TABLE scope ADD COLUMN tenant TEXT;

-- A record's checksum covers its journal too now. Records of earlier versions have none.
UPDATE journal SET checksum = NULL;
