"""What came of one update, for who asks by the id that it was sent under."""

from perdure.domain.endings import Audience, told
from perdure.domain.events import CommandTaken
from perdure.domain.outcomes import Outcome
from perdure.domain.records import Answer
from perdure.domain.transcript import joined, reply_text
from perdure.store.operations import journal
from perdure.store.statement import Op, row

ASKED = """
    SELECT message_id, turn_id FROM inbox
    WHERE external_id = $1 AND adapter = $2 AND kind = 'message' ORDER BY at DESC LIMIT 1"""
_REFUSED = """
    SELECT reason FROM refusals
    WHERE external_id = $1 AND adapter = $2 AND kind = 'message' ORDER BY at DESC LIMIT 1"""
_OUTCOME = "SELECT outcome, reason, detail FROM turns WHERE id = $1"


def answer(adapter: str, external_id: str) -> Op[Answer | None]:
    found = yield from row(ASKED, external_id, adapter)
    if found is None:
        return (yield from _refusal(adapter, external_id))
    message, turn = found
    ended = (yield from row(_OUTCOME, turn)) if turn else None
    if ended is None:
        return (yield from _command(message))
    outcome, reason, detail = ended
    if outcome is None:
        return Answer(state="pending")
    said = reply_text((yield from journal.of_turn(turn)))
    if outcome == Outcome.DONE:
        return Answer(state="done", text=said)
    shown = told(Outcome(outcome), reason, detail, Audience.PEOPLE)
    # What a budget refuses says so itself.
    why = "" if outcome == Outcome.REFUSED and detail else shown or reason
    return Answer(state="failed", text=joined([said, why]))


def _command(message: str) -> Op[Answer]:
    events = [recorded.event for recorded in (yield from journal.of_message(message))]
    replies = [event.reply for event in events if isinstance(event, CommandTaken)]
    return Answer(state="done", text=joined(replies))


def _refusal(adapter: str, external_id: str) -> Op[Answer | None]:
    found = yield from row(_REFUSED, external_id, adapter)
    return Answer(state="failed", text=f"it was not taken: {found[0]}") if found else None
