-- A message on a platform belongs to one part alone. `account` is the bot's, within which receipts
-- are unique; an edit has the receipt of the bubble that it changes.
ALTER TABLE outbox ADD COLUMN account TEXT NOT NULL DEFAULT '';
UPDATE outbox SET account =
    (SELECT c.account FROM conversations c WHERE c.id = outbox.conversation_id);
UPDATE outbox SET receipt = 'poll:' || id WHERE adapter = 'webhook' AND receipt = 'poll';
CREATE INDEX outbox_receipt ON outbox (adapter, account, receipt)
    WHERE step IN ('post', 'bubble', 'upload') AND receipt NOT IN ('', 'kept', 'gone');
UPDATE outbox SET state = 'unknown', receipt = '',
                  error = 'its receipt was another part''s; look whether both are to be seen'
    WHERE step IN ('post', 'bubble', 'upload') AND receipt NOT IN ('', 'kept', 'gone')
      AND EXISTS (SELECT 1 FROM outbox o
                  WHERE o.adapter = outbox.adapter AND o.account = outbox.account
                    AND o.receipt = outbox.receipt AND o.step IN ('post', 'bubble', 'upload')
                    AND o.receipt NOT IN ('', 'kept', 'gone') AND o.id < outbox.id);
DROP INDEX outbox_receipt;
CREATE UNIQUE INDEX outbox_receipt ON outbox (adapter, account, receipt)
    WHERE step IN ('post', 'bubble', 'upload') AND receipt NOT IN ('', 'kept', 'gone');

-- When people were told elsewhere that it could not be delivered; 0 of what tells them.
ALTER TABLE outbox ADD COLUMN told_at BIGINT;
CREATE INDEX outbox_told ON outbox (conversation_id, told_at) WHERE told_at IS NOT NULL;

-- What was asked of a platform lately, for the pace of the next start.
CREATE INDEX outbox_tried ON outbox (changed_at) WHERE attempts > 0;

-- Until when a platform wants nothing of us: in a place, or with no place named, of the account.
CREATE TABLE holds (
    adapter TEXT NOT NULL,
    place TEXT NOT NULL,
    until_at BIGINT NOT NULL,
    written_at BIGINT NOT NULL,
    PRIMARY KEY (adapter, place)
) /* keyed */;
