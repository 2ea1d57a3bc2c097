-- A turn that waits for an answer has no owner: only one that runs names its node.
DO $$
DECLARE
    rule text;
BEGIN
    SELECT conname INTO rule FROM pg_constraint
    WHERE conrelid = 'turns'::regclass AND contype = 'c'
      AND pg_get_constraintdef(oid) LIKE '%node_id IS NOT NULL%';
    EXECUTE format('ALTER TABLE turns DROP CONSTRAINT %I', rule);
END $$;
UPDATE turns SET node_id = NULL WHERE state <> 'running' AND node_id IS NOT NULL;
ALTER TABLE turns ADD CONSTRAINT turns_owned CHECK ((state = 'running') = (node_id IS NOT NULL));
