"""What a turn leaves when it is over: to people on a platform, and to the next request."""

from collections.abc import Sequence

import msgspec

from perdure.domain.address import Address
from perdure.domain.ids import TurnId
from perdure.domain.journal.attachments import given_in
from perdure.domain.journal.events import AssistantSaid, Recorded, ToolFinished, TurnQueued
from perdure.domain.journal.transcript import joined, reply_text
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Outcome
from perdure.domain.prompt.prefix import break_between
from perdure.domain.prompt.tokens import tokens_of
from perdure.domain.turn.endings import Audience, ending_text, standing_in
from perdure.engine.delivery.surfaces import Surface
from perdure.engine.models.prompts import Prompted
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
    """The turn's whole text with how it ended, in parts that the platform takes. Over HTTP people
    read the journal."""
    if surface is None:
        return ()
    said = joined([reply_text(turn), settlement.text])
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
    footer = _footer(settlement, seconds) if has_footer else ""
    return await surface.plan_reply(joined([said, note and f"_{note}_", ending, footer]), address)


def note_of(surface: Surface | None, queued: TurnQueued, settlement: Settlement) -> str:
    """Return what people over HTTP are told behind an answer; on a platform it is in the reply."""
    is_read = settlement.outcome is Outcome.DONE and queued.kind == TurnKind.MESSAGE
    if surface is not None or not is_read:
        return ""
    return standing_in(settlement.agent, settlement.reach, Audience.PEOPLE)


def _is_silent(turn: Sequence[Recorded], settlement: Settlement) -> bool:
    """Whether nothing was said, and no file given, after the turn's last tool call."""
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


def with_files(
    surface: Surface | None, turn: Sequence[Recorded], settlement: Settlement
) -> Settlement:
    """With the files that are to be sent: all that the turn has given, in any of its attempts."""
    if surface is None:
        return settlement
    given = [*given_in(turn), *settlement.attachments]
    files = tuple(each.media for each in given if each.media is not None)
    return msgspec.structs.replace(settlement, files=files)


def measured(
    settlement: Settlement, prompted: Prompted | None, context_tokens: int, prefix_before: str
) -> Settlement:
    """With how much the model reads to know all this, and what its request was made from."""
    if prompted is None:
        return settlement
    return msgspec.structs.replace(
        settlement,
        agent=settlement.agent or prompted.basis.agent,
        context_tokens=context_tokens + tokens_of(settlement.text),
        asked=prompted.origin,
        prefix_break=break_between(prefix_before, prompted.basis),
    )


def _footer(settlement: Settlement, seconds: float) -> str:
    """Who answered, how long it took and what it read and wrote."""
    usage = settlement.usage
    tokens = usage.input_tokens + usage.output_tokens
    told = [settlement.agent, f"{seconds:.1f} s", f"{tokens:,} tokens" if tokens else ""]
    return f"_{' · '.join(each for each in told if each)}_"
