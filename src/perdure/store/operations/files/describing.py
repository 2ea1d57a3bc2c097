"""Lets a turn wait until a sticker in its message is described.

The turn waits by the row of a file to be fetched, and that row becomes due again at the latest when
the wait is over. So the turn begins, whatever becomes of the errand that describes the sticker.
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
from perdure.store.operations.turn_locks import Locked
from perdure.store.operations.turns import errands
from perdure.store.statement import Op, one, run

# Finds the conversation of a session.
_CONVERSATION = "SELECT conversation_id FROM sessions WHERE id = $1"
# Lets a turn wait for the description of a sticker.
_WAIT = """
    UPDATE fetches SET state = 'pending', node_id = NULL, due_at = $1, changed_at = $2,
                       media_id = COALESCE($3, media_id)
    WHERE id = $4"""


def meet(fetch: Fetch, stamp: Stamp) -> Op[Met]:
    """Tell the turn the known description; or let it wait for the errand that describes the
    sticker; or return that nobody does yet (`is_new`). If describing failed lately, the turn begins
    without words."""
    held = yield from fetching.held(fetch, fetching.LOST)
    if held is None:
        return Met()  # repeated after a lost answer
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
    """Let the turn wait until `due_at` at most, and store the picture if there is one now."""
    yield from run(_WAIT, due_at, stamp.at, picture, fetch.id)


def _agent(turn: TurnId) -> Op[str]:
    """Return the agent of a turn."""
    queued = (yield from journal.of_turn(turn))[0].event
    assert isinstance(queued, TurnQueued)
    return queued.agent


def describe(
    fetch: Fetch, found: FetchedFile, media_id: MediaId, agent: str, stamp: Stamp
) -> Op[list[Recorded]]:
    """Order an errand that describes the picture, unless another one is under way, and wait for
    it."""
    held = yield from fetching.held(fetch, fetching.LOST)
    if held is None:
        return []
    known = yield from stickers.known(fetch.adapter, fetch.sticker_id, stamp)
    if known is not None and (known.words or known.is_open):
        yield from _wait(fetch, AT_ONCE, stamp)
        return []  # another turn was faster: look again
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
    """Order an errand that sees the picture and nothing that was said: its words are for
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
    """Let the turn begin without a description."""
    held = yield from fetching.held(fetch, fetching.LOST)
    if held is None:
        return []
    return (yield from _tell(fetch, held, "", stamp))


def _tell(fetch: Fetch, held: Locked, words: str, stamp: Stamp) -> Op[list[Recorded]]:
    """End the wait: tell the turn these words, which may be empty."""
    event = StickerDescribed(turn=fetch.turn, message=fetch.message, index=fetch.index, words=words)
    ending = fetching.FileEnding(fetching.LOST, [event])
    return (yield from fetching.end(fetch, held, ending, stamp))
