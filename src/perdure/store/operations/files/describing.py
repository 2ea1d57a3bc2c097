"""Turns that wait to be told what a sticker shows.

Such a turn waits by the row of a file that is to be fetched, and is told at the latest when that
row is due again. So whatever becomes of the errand that describes the sticker, the turn begins.
"""

from perdure.domain.content.stickers import AGAIN_MS, WAIT_MS
from perdure.domain.ids import ConversationId, MediaId, MessageId, TurnId
from perdure.domain.journal.events import Attachment, Recorded, StickerDescribed, TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.domain.waits import AT_ONCE
from perdure.ports.records.media import Fetch, FetchedFile, Media
from perdure.ports.records.stickers import Met
from perdure.store.operations import journal, stickers
from perdure.store.operations.files import fetching, media
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turns import errands
from perdure.store.operations.turns.endings import Locked
from perdure.store.statement import Op, one, run

# Finds the conversation of a session.
_CONVERSATION = "SELECT conversation_id FROM sessions WHERE id = $1"
# Lets a turn wait for what a sticker shows.
_WAIT = """
    UPDATE fetches SET state = 'pending', node_id = NULL, due_at = $1, changed_at = $2,
                       media_id = COALESCE($3, media_id)
    WHERE id = $4"""


def meet(fetch: Fetch, stamp: Stamp) -> Op[Met]:
    """Tell the turn what is known, wait for who finds it out, or say that somebody must."""
    held = yield from fetching.held(fetch, fetching.LOST)
    if held is None:
        return Met()  # said again after a lost answer
    known = yield from stickers.known(fetch.adapter, fetch.sticker_id, stamp)
    if known is not None and known.words:
        return Met(recorded=(yield from _tell(fetch, held, known.words, stamp)))
    if known is not None and known.is_open and stamp.at < known.tried_at + WAIT_MS:
        yield from _wait(fetch, known.tried_at + WAIT_MS, stamp)
        return Met()
    if known is not None and (known.is_open or stamp.at < known.tried_at + AGAIN_MS):
        return Met(recorded=(yield from _tell(fetch, held, "", stamp)))
    return Met(is_new=True, agent=(yield from _agent(fetch.turn)))


def _wait(fetch: Fetch, due_at: int, stamp: Stamp, *, picture: MediaId | None = None) -> Op[None]:
    """Let the turn wait until this instant at most, and keep the picture if it is here now."""
    yield from run(_WAIT, due_at, stamp.at, picture, fetch.id)


def _agent(turn: TurnId) -> Op[str]:
    queued = (yield from journal.of_turn(turn))[0].event
    assert isinstance(queued, TurnQueued)
    return queued.agent


def describe(
    fetch: Fetch, found: FetchedFile, media_id: MediaId, agent: str, stamp: Stamp
) -> Op[list[Recorded]]:
    """Send an errand that describes the picture, unless another one is under way; wait for it."""
    held = yield from fetching.held(fetch, fetching.LOST)
    if held is None:
        return []
    known = yield from stickers.known(fetch.adapter, fetch.sticker_id, stamp)
    if known is not None and (known.words or known.is_open):
        yield from _wait(fetch, AT_ONCE, stamp)
        return []  # another one was faster: look again
    picture = Media(
        id=media_id, mime=found.mime, name=found.name, size=found.size, digest=found.digest
    )
    kept = yield from media.put(picture, fetch.principal, at=stamp.at)
    recorded = yield from _send(fetch, held, kept, agent, stamp)
    errand = recorded[-1].turn
    assert errand is not None
    yield from stickers.tried(fetch.adapter, fetch.sticker_id, errand, stamp, before=known)
    yield from _wait(fetch, stamp.at + WAIT_MS, stamp, picture=kept.id)
    return recorded


def _send(
    fetch: Fetch, held: Locked, picture: Media, agent: str, stamp: Stamp
) -> Op[list[Recorded]]:
    """Send an errand that looks at the picture and at nothing that was said: its words are for
    everybody."""
    conversation = yield from one(ConversationId, _CONVERSATION, held.session)
    assert conversation is not None
    seen = Attachment(media=picture.id, mime=picture.mime, name=picture.name, size=picture.size)
    order = errands.Order(
        TurnKind.STICKER,
        held.session,
        conversation,
        fetch.principal,
        None,
        MessageId(stamp.mint("msg")),
        agent=agent,
        attachments=(seen,),
    )
    return (yield from errands.begin(order, stamp))


def pass_by(fetch: Fetch, stamp: Stamp) -> Op[list[Recorded]]:
    """Tell the turn of it without words."""
    held = yield from fetching.held(fetch, fetching.LOST)
    if held is None:
        return []
    return (yield from _tell(fetch, held, "", stamp))


def _tell(fetch: Fetch, held: Locked, words: str, stamp: Stamp) -> Op[list[Recorded]]:
    event = StickerDescribed(turn=fetch.turn, message=fetch.message, index=fetch.index, words=words)
    ending = fetching.FileEnding(fetching.LOST, [event])
    return (yield from fetching.end(fetch, held, ending, stamp))
