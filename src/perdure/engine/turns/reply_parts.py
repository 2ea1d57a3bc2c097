"""Builds what a turn leaves when it is over: the reply for people on a platform, and the numbers
that the next request needs."""

from collections.abc import Sequence

import msgspec

from perdure.domain.address import Address
from perdure.domain.content.silence import is_silent
from perdure.domain.ids import TurnId
from perdure.domain.journal.attachments import given_in
from perdure.domain.journal.events import AssistantSaid, Recorded, ToolFinished, TurnQueued
from perdure.domain.journal.transcript import joined, reply_text
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.prompt.prefix import break_between
from perdure.domain.prompt.refusals import left_out_after, what_to_do
from perdure.domain.prompt.tokens import tokens_of
from perdure.domain.sayings.saying import ReaderLanguage, in_language, language_of
from perdure.domain.turn.endings import Audience, ending_text, offered_after, standing_in
from perdure.domain.turn.spent import spent_earlier
from perdure.engine.delivery.surfaces import Surface
from perdure.engine.models.prompts import Prompted
from perdure.engine.turns.ledger import Ledger
from perdure.engine.turns.step import ModelStep
from perdure.ports.turns.turns import Settlement


async def reply_parts(  # noqa: PLR0913 - a turn, and where it is told
    surface: Surface | None,
    address: Address,
    turn_id: TurnId,
    turn: Sequence[Recorded],
    settlement: Settlement,
    *,
    audience: Audience,
    seconds: float,
) -> tuple[str, ...]:
    """Return the turn's whole text and how it ended, in parts that the platform takes. Returns none
    without a platform: over HTTP people read the journal."""
    if surface is None:
        return ()
    said = joined([reply_text(turn), settlement.text])
    if _stays_silent(turn, said, settlement):
        return ()
    ending = ending_text(
        settlement.outcome,
        settlement.reason,
        settlement.detail,
        turn=turn_id,
        audience=audience,
        has_text=bool(said or settlement.files),
        is_silent=_is_silent(turn, settlement),
    )
    note = standing_in(settlement.agent, settlement.reach, audience) if said else ""
    has_footer = surface.display.has_footer and not settlement.origin
    footer = _footer(settlement, turn, seconds) if has_footer else ""
    ending = in_language(ending, _language(turn))
    return await surface.plan_reply(joined([said, note and f"_{note}_", ending, footer]), address)


def _language(turn: Sequence[Recorded]) -> ReaderLanguage:
    """Return the language in which the person of a turn uses the platform."""
    first = turn[0].event
    return language_of(first.traits.language if isinstance(first, TurnQueued) else "")


def spoken(turn: Sequence[Recorded], settlement: Settlement, parts: Sequence[str]) -> str:
    """Return the text of an answer that may be read aloud: all that the turn has said, if it has
    succeeded and is told at all."""
    if not parts or settlement.outcome is not Outcome.DONE:
        return ""
    return joined([reply_text(turn), settlement.text])


def offered(settlement: Settlement) -> tuple[str, ...]:
    """Return the commands to offer as buttons under the reply. The reply names them too, for
    platforms without buttons."""
    has_text = bool(settlement.text.strip())
    return offered_after(settlement.outcome, settlement.reason, has_text=has_text)


def note_of(surface: Surface | None, queued: TurnQueued, settlement: Settlement) -> str:
    """Return the note under an answer that names another agent than the one that was asked, for
    people over HTTP; empty if there is none. On a platform the reply contains it."""
    is_read = settlement.outcome is Outcome.DONE and queued.kind == TurnKind.MESSAGE
    if surface is not None or not is_read:
        return ""
    return standing_in(settlement.agent, settlement.reach, Audience.PEOPLE)


def _stays_silent(turn: Sequence[Recorded], said: str, settlement: Settlement) -> bool:
    """Tell whether the agent has decided, where it may, that the message needs no answer."""
    first = turn[0].event
    may_be_silent = isinstance(first, TurnQueued) and first.may_be_silent
    is_done = settlement.outcome is Outcome.DONE and not settlement.files
    return may_be_silent and is_done and is_silent(said)


def _is_silent(turn: Sequence[Recorded], settlement: Settlement) -> bool:
    """Tell whether nothing was said, and no file given, after the turn's last tool call."""
    if settlement.text.strip() or settlement.attachments:
        return False
    for recorded in reversed(turn):
        match recorded.event:
            case ToolFinished():
                return True
            case AssistantSaid(text=text, attachments=files) if text.strip() or files:
                return False
            case _:
                pass
    return True


async def leaving_out(settlement: Settlement, step: ModelStep, ledger: Ledger) -> Settlement:
    """Return the settlement with what later requests leave out if the model's server has refused
    what was asked. The detail then tells everybody what to do. Nothing follows an errand, so it
    leaves nothing out."""
    refusal = step.refusal
    if refusal is None or ledger.queued.kind.is_errand:
        return settlement
    what = left_out_after(refusal, ledger.events, await ledger.window())
    is_told = settlement.reason == StopReason.CONTENT_REFUSED
    if not is_told and (not what or settlement.outcome is not Outcome.FAILED):
        return msgspec.structs.replace(settlement, left_out=what)
    why = settlement.detail if is_told else step.stopped.words
    # A program has asked once, and gives no commands.
    advice = "" if ledger.queued.kind is TurnKind.CALL else f"; {what_to_do(what)}"
    return msgspec.structs.replace(
        settlement,
        left_out=what,
        reason=StopReason.CONTENT_REFUSED,
        detail=f"{why}{advice}",
    )


def with_files(
    surface: Surface | None, turn: Sequence[Recorded], settlement: Settlement
) -> Settlement:
    """Return the settlement with the files to send: all that the turn gave, in any attempt."""
    if surface is None:
        return settlement
    given = [*given_in(turn), *settlement.attachments]
    files = tuple(each.media for each in given if each.media is not None)
    return msgspec.structs.replace(settlement, files=files)


def measured(
    settlement: Settlement, prompted: Prompted | None, context_tokens: int, prefix_before: str
) -> Settlement:
    """Return the settlement with the size of the context after this turn, and with what its last
    request was made from. Without a request it stays as it is."""
    if prompted is None:
        return settlement
    return msgspec.structs.replace(
        settlement,
        agent=settlement.agent or prompted.basis.agent,
        context_tokens=context_tokens + tokens_of(settlement.text),
        asked=prompted.origin,
        prefix_break=break_between(prefix_before, prompted.basis),
    )


def _footer(settlement: Settlement, turn: Sequence[Recorded], seconds: float) -> str:
    """Return a line that says who answered, how long it took, and how many tokens were used."""
    usage = settlement.usage + spent_earlier(recorded.event for recorded in turn).usage
    tokens = usage.input_tokens + usage.output_tokens
    told = [settlement.agent, f"{seconds:.1f} s", f"{tokens:,} tokens" if tokens else ""]
    return f"_{' · '.join(each for each in told if each)}_"
