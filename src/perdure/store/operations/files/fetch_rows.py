"""Reads the row of one file that a turn waits for."""

from typing import Final, NamedTuple

import msgspec

from perdure.domain.content.stickers import Sticker
from perdure.domain.ids import MediaId, MessageId, PrincipalId, TurnId
from perdure.domain.journal.events import Attachment
from perdure.ports.records.media import Fetch
from perdure.store.statement import Op, one

# The columns of a `FetchRow`.
COLUMNS: Final = """
    f.id, f.turn_id, f.message_id, f.place, f.adapter, f.attempts, f.created_at, f.reference,
    f.url, f.mime, f.name, f.size, f.is_voice, f.media_id, f.sticker, t.principal_id,
    f.changed_at"""
# Reads files that turns wait for, as a `FetchRow`; the caller appends which.
FETCH: Final = f"SELECT {COLUMNS} FROM fetches f JOIN turns t ON t.id = f.turn_id "
# Locks a file and reads how far it has come.
_STATE: Final = "SELECT state, attempts FROM fetches WHERE id = $1 FOR UPDATE"


class FetchRow(NamedTuple):
    """Holds a file that a turn waits for. `number` is its position in the message."""

    id: str
    turn: TurnId
    message: MessageId
    number: int
    adapter: str
    attempts: int
    created_at: int
    reference: str
    url: str
    mime: str
    name: str
    size: int
    is_voice: int
    media: MediaId | None
    sticker: str
    principal: PrincipalId
    changed_at: int


class FileProgress(NamedTuple):
    """Holds how far a file has come."""

    state: str
    attempts: int


def fetch_of(found: FetchRow) -> Fetch:
    """Return the file that a row holds."""
    return Fetch(
        id=found.id,
        turn=found.turn,
        message=found.message,
        index=found.number,
        adapter=found.adapter,
        attachment=Attachment(
            media=found.media if not found.sticker else None,
            url=found.url or None,
            mime=found.mime,
            name=found.name,
            reference=found.reference,
            size=found.size,
            is_voice=bool(found.is_voice),
            sticker=msgspec.json.decode(found.sticker, type=Sticker) if found.sticker else None,
        ),
        principal=found.principal,
        attempts=found.attempts,
        created_at=found.created_at,
    )


def fetch_progress(fetch: Fetch) -> Op[FileProgress | None]:
    """Return how far a file has come, and lock it until the transaction ends."""
    return (yield from one(FileProgress, _STATE, fetch.id))
