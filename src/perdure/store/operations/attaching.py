"""Writes the rows of files that a turn waits for, and closes them when the turn ends.

The rows are written in the transaction that appends `TurnQueued` or `MessageJoined`. So after a
crash no message is found without the rows that make somebody fetch its files.
"""

from typing import Final

import msgspec

from perdure.domain.ids import TurnId
from perdure.domain.journal.attachments import unread_in
from perdure.domain.journal.events import Attachment, MessageJoined, TurnQueued
from perdure.domain.waits import AT_ONCE
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, run

# Adds a file that a turn waits for, at the end of its person's line. The rank lets people take
# turns: it follows the person's own last file, or starts level with the first in line.
_PUT = f"""
    INSERT INTO fetches (id, turn_id, message_id, place, adapter, reference, url, mime, name, size,
                         is_voice, state, attempts, due_at, media_id, error, created_at, changed_at,
                         sticker_id, sticker, principal_id, seq, rank)
    SELECT $1, t.id, $2, $3, CASE WHEN $4 = '' THEN '' ELSE c.adapter END, $4, $5, $6, $7, $8, $9,
           'pending', 0, {AT_ONCE}, $10, '', $11, $11, $12, $13, t.principal_id,
           (SELECT COALESCE(MAX(q.seq), 0) + 1 FROM fetches q WHERE q.state = 'pending'
              AND q.adapter = CASE WHEN $4 = '' THEN '' ELSE c.adapter END),
           COALESCE(
               (SELECT MAX(q.rank) + 1 FROM fetches q WHERE q.state = 'pending'
                  AND q.adapter = CASE WHEN $4 = '' THEN '' ELSE c.adapter END
                  AND q.principal_id = t.principal_id),
               (SELECT MIN(q.rank) FROM fetches q WHERE q.state = 'pending'
                  AND q.adapter = CASE WHEN $4 = '' THEN '' ELSE c.adapter END), 0)
    FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = COALESCE(t.via_id, s.conversation_id)
    WHERE t.id = $14"""
# Adds to the number of files that a turn waits for.
_COUNT = "UPDATE turns SET fetching = fetching + $1 WHERE id = $2"
# Gives up the files of a turn that has ended.
_CLOSE = """
    UPDATE fetches SET state = 'lost', error = $1, node_id = NULL, changed_at = $2
    WHERE turn_id = $3 AND state IN ('pending', 'attempting')"""
# Resets the number of files that an ended turn waits for.
_CLOSE_COUNT = "UPDATE turns SET fetching = 0 WHERE id = $1 AND fetching > 0"
ENDED: Final = "its turn was ended"


def put(spoken: TurnQueued | MessageJoined, stamp: Stamp) -> Op[None]:
    """Write a row for each file of a message that is not stored yet, or not read. The turn's row
    must exist already."""
    places = unread_in(spoken)
    if not places:
        return
    for place in places:
        attachment = spoken.attachments[place]
        reference, url = _source(attachment)
        yield from run(
            _PUT,
            stamp.mint("fch"), spoken.message, place, reference, url,
            attachment.mime, attachment.name, attachment.size, int(attachment.is_voice),
            attachment.media, stamp.at, *_sticker(attachment), spoken.turn,
        )  # fmt: skip
    yield from run(_COUNT, len(places), spoken.turn)


def _sticker(attachment: Attachment) -> tuple[str, str]:
    """Return a sticker's id and its JSON, or two empty strings."""
    sticker = attachment.sticker
    return (sticker.id, msgspec.json.encode(sticker).decode()) if sticker else ("", "")


def _source(attachment: Attachment) -> tuple[str, str]:
    """Return where to fetch a file from: the platform's reference or a URL, never both. Both are
    empty for a file that is stored already and only has to be read."""
    if attachment.media is not None:
        return "", ""
    return attachment.reference, "" if attachment.reference else attachment.url or ""


def close(turn: TurnId, stamp: Stamp) -> Op[None]:
    """Give up the files of a turn that ended before it began: nobody needs them. A fetch under way
    learns of it when it wants to store the file."""
    yield from run(_CLOSE, ENDED, stamp.at, turn)
    yield from run(_CLOSE_COUNT, turn)
