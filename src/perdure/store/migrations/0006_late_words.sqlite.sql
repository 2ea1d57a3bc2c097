-- Words that come late, by an edit, wait for the index like all others: from `from_seq` on.
ALTER TABLE unindexed ADD COLUMN from_seq INTEGER NOT NULL DEFAULT 0;

-- Late edits in groups were indexed as one person's own words. They leave the index and wait again.
CREATE TEMPORARY TABLE astray AS
    SELECT j.turn_id, MIN(j.seq) AS from_seq, j.session_id
    FROM searchable d JOIN journal j ON j.session_id = d.session_id AND j.seq = d.seq
    JOIN sessions s ON s.id = j.session_id JOIN conversations c ON c.id = s.conversation_id
    WHERE j.kind = 'turn_amended' AND c.kind = 'group' AND c.person = ''
    GROUP BY j.turn_id, j.session_id;
DELETE FROM search_index WHERE rowid IN (
    SELECT d.id FROM searchable d JOIN journal j ON j.session_id = d.session_id AND j.seq = d.seq
    JOIN astray a ON a.turn_id = j.turn_id AND a.session_id = j.session_id AND j.seq >= a.from_seq);
DELETE FROM searchable WHERE id IN (
    SELECT d.id FROM searchable d JOIN journal j ON j.session_id = d.session_id AND j.seq = d.seq
    JOIN astray a ON a.turn_id = j.turn_id AND a.session_id = j.session_id AND j.seq >= a.from_seq);
INSERT INTO unindexed (turn_id, from_seq) SELECT turn_id, from_seq FROM astray;
DROP TABLE astray;
