-- The readable name of a tenant whose name is a hash; NULL if it is none, or was never given.
ALTER TABLE scope ADD COLUMN tenant TEXT;
