-- Whose text a stream holds: it is erased with its tenant, and with its session if it has one. Streams of earlier versions are
-- erased with the tenant that their scope names.
ALTER TABLE stream ADD COLUMN tenant bytea NOT NULL DEFAULT '';
ALTER TABLE stream ADD COLUMN session bytea;
UPDATE stream SET tenant = CASE position('\x2f'::bytea IN scope) WHEN 0 THEN scope
    ELSE substring(scope FROM 1 FOR position('\x2f'::bytea IN scope) - 1) END;
CREATE INDEX stream_by_subject ON stream (tenant, session);
