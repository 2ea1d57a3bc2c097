-- Texts that requests were made of and no journal holds, each once, by its digest: instructions,
-- tools, and what is remembered. Of the last, the owner is the person or the shared conversation
-- that it tells of; it goes when one of its lines is changed or erased.
CREATE TABLE texts (
    owner TEXT NOT NULL,
    digest TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (owner, digest)
) /* keyed */;

-- What the request was made from that this text answers, with the first piece of it: a turn that is
-- ended from outside has no other word of it.
ALTER TABLE partials ADD COLUMN prefix TEXT NOT NULL DEFAULT '';
