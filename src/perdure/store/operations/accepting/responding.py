"""Takes what a person does as the answer to a question of an agent: the press of a button, a reply
to the question's message, or plain words where the agent has asked for them.

Plain words never approve a call. Whoever answers too late, or somebody else's question, is told so;
the message is recorded as an answer either way, and the model never reads it.
"""

from collections.abc import Sequence
from typing import Final

from perdure.domain.ids import TurnId
from perdure.domain.inbound.arrivals import Press
from perdure.domain.inbound.updates import Accepted, UpdateEffect
from perdure.domain.journal.events import Recorded
from perdure.domain.journal.session_events import CommandTaken
from perdure.domain.kinds import UpdateKind
from perdure.domain.sayings.saying import in_language
from perdure.domain.tools.asking import consent_of
from perdure.domain.turn.turn import State
from perdure.ports.turns.questions import QuestionReply
from perdure.store.operations import journal
from perdure.store.operations.commands.permitting import give, reply_of
from perdure.store.operations.delivery.outbox import PartText, put_unless_read
from perdure.store.operations.questions import question_rows
from perdure.store.operations.questions.question_rows import PENDING, QuestionRow
from perdure.store.operations.turn_context import TurnContext
from perdure.store.operations.turns import queueing
from perdure.store.statement import Op

ANSWER: Final = "answer"


def respond(context: TurnContext) -> Op[Accepted | None]:
    """Take an update as an answer, or return None if it is none."""
    update = context.update
    if update.kind is not UpdateKind.MESSAGE or update.is_forwarded:
        return None
    if update.press is not None:
        return (yield from _pressed(context, update.press))
    if update.reply_to:
        address = update.address
        row = yield from question_rows.by_receipt(address.adapter, address.account, update.reply_to)
        if row is not None:
            return (yield from _replied(context, row))
    row = yield from _asked_for_words(context)
    return None if row is None else (yield from _take(context, row, _said(row, update.own_words)))


def _pressed(context: TurnContext, press: Press) -> Op[Accepted]:
    """Take the press of a button."""
    row = yield from question_rows.question(press.question)
    if row is None or not 0 <= press.choice < len(row.words):
        return (yield from _told(context, None, "This question does not exist any more."))
    word = row.words[press.choice]
    if not row.is_approval:
        return (yield from _take(context, row, _said(row, word)))
    consent = consent_of(word)
    assert consent is not None, f"{row.id} offers {word}, which is no answer"
    return (yield from _take(context, row, reply_of(row.id, consent)))


def _replied(context: TurnContext, row: QuestionRow) -> Op[Accepted | None]:
    """Take a reply to the message of a question. Words that say neither yes nor no to a call are a
    message like any other."""
    words = context.update.own_words
    if not row.is_approval:
        is_open = row.state == PENDING
        return (yield from _take(context, row, _said(row, words))) if is_open else None
    consent = consent_of(words)
    return None if consent is None else (yield from _take(context, row, reply_of(row.id, consent)))


def _asked_for_words(context: TurnContext) -> Op[QuestionRow | None]:
    """Return the question that plain words answer: the only open one of an agent to this person
    here. If it offers choices, the words must be one of them, or its number."""
    update = context.update
    is_waiting = any(turn.state == State.WAITING for turn in context.open_turns)
    if not is_waiting or update.attachments or update.album or not update.own_words.strip():
        return None
    here = context.place.via or context.conversation
    found = [
        row
        for row in (yield from question_rows.open_here(here))
        if not row.is_approval and row.principal == update.principal
    ]
    if len(found) != 1:
        return None
    row = found[0]
    return row if not row.words or _chosen(row, update.own_words) else None


def _chosen(row: QuestionRow, words: str) -> str:
    """Return the choice that these words name, or an empty string."""
    said = words.strip().casefold()
    by_name = {word.casefold(): word for word in row.words}
    by_number = {str(number): word for number, word in enumerate(row.words, start=1)}
    return by_name.get(said) or by_number.get(said, "")


def _said(row: QuestionRow, words: str) -> QuestionReply:
    """Return the answer to a question of the agent's own. Whoever gives it is filled in later."""
    return QuestionReply(
        question=row.id, answer=_chosen(row, words) or words.strip(), by=row.principal
    )


def _take(context: TurnContext, row: QuestionRow, reply: QuestionReply) -> Op[Accepted]:
    """Give an answer, and record it."""
    given = yield from give(context, row, reply)
    turn = row.turn if given.counts else None
    return (yield from _told(context, turn, given.told, given.recorded))


def _told(
    context: TurnContext, turn: TurnId | None, told: str, recorded: Sequence[Recorded] = ()
) -> Op[Accepted]:
    """Record that an answer came, and tell whoever gave it what came of it. An answer that counts
    is told by the question itself, which loses its buttons."""
    stamp, message = context.stamp, context.fresh.message
    told = in_language(told, context.language)
    taken = CommandTaken(
        command=ANSWER, arguments="", by=context.update.principal, message=message, reply=told
    )
    more = yield from journal.append(context.session, [taken], at=stamp.at)
    if turn is None:
        to = context.place.via or context.conversation
        yield from put_unless_read(context.session, None, message, PartText(told), stamp, to=to)
    return queueing.accepted(
        context,
        turn,
        UpdateEffect.ANSWERED,
        [*recorded, *more],
        command=ANSWER,
        reply=told,
    )
