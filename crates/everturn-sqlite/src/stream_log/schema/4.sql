-- Whose text a stream holds: it is erased with its tenant, and with its session if it has one. Streams of earlier versions are
-- erased with the tenant that their scope names.
ALTER TABLE stream ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE stream ADD COLUMN session TEXT;
UPDATE stream SET tenant = CASE instr(scope, '/') WHEN 0 THEN scope ELSE substr(scope, 1, instr(scope, '/') - 1) END;
CREATE INDEX stream_by_subject ON stream (tenant, session);
