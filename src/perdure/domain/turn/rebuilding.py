"""Makes the last request of a turn again from what is stored.

The messages come from the journal as it was then: a `Basis` says which summary was in force and
which edits of messages were known. The texts of instructions, memory and tools are kept by their
digests. Notes are stored nowhere. They are derived again from the interruptions that they are
about, so they are the only blocks that may differ from what was sent.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from perdure.domain.journal.events import Recorded, TurnQueued
from perdure.domain.prompt.history import history_of, open_after
from perdure.domain.prompt.old_pictures import without_old
from perdure.domain.prompt.prefix import Basis, was_told
from perdure.domain.prompt.prompt import (
    Encode,
    ModelRequest,
    PromptMessage,
    Window,
    assemble,
    extend,
    weave,
)
from perdure.domain.prompt.shortening import shortened
from perdure.domain.prompt.whereabouts import Times, times_of
from perdure.domain.tools.callers import merged_tools
from perdure.domain.turn.recovery import messages_with_notes, telling_again

INSTRUCTIONS: Final = "instructions"
MEMORY: Final = "memory"
TOOLS: Final = "tools"


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is stored about a turn's last request: the turns before it from the summary on,
    its own events, and those of its texts that are still kept, by their digests."""

    basis: Basis
    chain: Sequence[Sequence[Recorded]]
    turn: Sequence[Recorded]
    texts: Mapping[str, str]

    @property
    def queued(self) -> TurnQueued:
        """Return the event with which the turn began."""
        return next(r.event for r in self.turn if isinstance(r.event, TurnQueued))


class _RequestTexts(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the texts of a request besides its messages. `missing` names those that are not kept
    any more."""

    instructions: str
    memory: str
    tools: str
    missing: tuple[str, ...] = ()


def together(*texts: str) -> str:
    """Join texts as paragraphs of the instructions."""
    return "\n\n".join(text for text in texts if text)


def digests_of(basis: Basis, queued: TurnQueued) -> dict[str, str]:
    """Return the digests of the texts that no journal holds, by what each text is."""
    own = basis.own if queued.instructions else basis.instructions
    tools = basis.own_tools if queued.tools else basis.tools
    return {INSTRUCTIONS: own, MEMORY: basis.memory, TOOLS: tools}


def spoken_in(asked: StoredRequest) -> _RequestTexts:
    """Return the texts of a request besides its messages."""
    basis, queued = asked.basis, asked.queued
    digests = digests_of(basis, queued)
    found = {name: asked.texts.get(digest, "") for name, digest in digests.items()}
    given = queued.instructions if basis.instructions else ""
    return _RequestTexts(
        instructions=together(found[INSTRUCTIONS], given),
        memory=found[MEMORY],
        tools=merged_tools(found[TOOLS], queued.tools if basis.tools else ""),
        missing=tuple(name for name, digest in digests.items() if digest and not found[name]),
    )


def history_in(asked: StoredRequest) -> list[PromptMessage]:
    """Return the messages before the turn, as the model was told them then."""
    source, tokens_max = asked.basis.source, asked.basis.tokens_max
    told = [[r for r in events if was_told(r, source)] for events in asked.chain]
    is_told = asked.queued.kind.is_told_overheard
    messages = history_of(told, times=_times(asked), with_overheard=is_told)
    if tokens_max:
        return readable(messages, tokens_max=tokens_max)
    return without_old(messages, asked.basis.old_pictures)


def readable(messages: Sequence[PromptMessage], *, tokens_max: int) -> list[PromptMessage]:
    """Shorten a history to what a summariser can read."""
    woven, newest = weave(None, messages)
    return shortened([*woven, newest] if newest else woven, tokens_max=tokens_max)


def own_in(asked: StoredRequest) -> list[PromptMessage]:
    """Return the turn's own messages up to the request, with notes that are derived again."""
    basis = asked.basis
    known = [r for r in asked.turn if r.seq <= basis.upto and was_told(r, basis.source)]
    telling = telling_again(asked.turn, asked.chain, upto=basis.upto)
    before = open_after(asked.chain)
    return messages_with_notes(known, telling, times=_times(asked), before=before)


def _times(asked: StoredRequest) -> Times:
    """Return the lines of times that the request told."""
    events = chain.from_iterable([*asked.chain, asked.turn])
    return times_of(events, asked.basis.zone)[0]


def rebuilt(
    asked: StoredRequest,
    history: Sequence[PromptMessage],
    own: Sequence[PromptMessage],
    *,
    encode: Encode,
) -> ModelRequest:
    """Make the request again from these messages. The caller may have put pictures back into
    them."""
    spoken, queued = spoken_in(asked), asked.queued
    return assemble(
        extend(Window(), history, encode=encode),
        own,
        instructions=together(spoken.instructions, spoken.memory),
        context=queued.context,
        tools=spoken.tools,
        options=queued.asking,
        purpose=queued.kind if queued.kind.is_errand else "",
    )
