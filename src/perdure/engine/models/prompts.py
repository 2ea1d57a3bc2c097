"""Makes requests from the journal, and encodes each message once.

A settled turn never changes, so the encoded window that ends at it can be kept (`windows.py`). Only
speed depends on that: a window that is missing is made again from the store. A turn that no other
turn can follow leaves no window behind: a call without a conversation, or an errand.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from perdure.domain.ids import TurnId
from perdure.domain.journal.events import Recorded, TurnQueued
from perdure.domain.journal.left_out import leaves_something_out
from perdure.domain.kinds import TurnKind
from perdure.domain.people.memory import memory_section
from perdure.domain.prompt.history import history_of, open_after
from perdure.domain.prompt.old_pictures import old_pictures, picture_count, without_old
from perdure.domain.prompt.prefix import (
    Basis,
    KeptText,
    RequestOrigin,
    and_then,
    kept_text,
    source_of,
    text_digest,
    written_basis,
)
from perdure.domain.prompt.prompt import (
    ModelRequest,
    PromptMessage,
    Window,
    assemble,
    extend,
    has_thoughts,
    messages_of,
    tokens_of_messages,
    weave,
)
from perdure.domain.prompt.tokens import tokens_of
from perdure.domain.prompt.whereabouts import times_of, whereabouts_section
from perdure.domain.tools.callers import left_open, merged_tools
from perdure.domain.turn.overflow import limit_of, refusal_of
from perdure.domain.turn.rebuilding import (
    StoredRequest,
    history_in,
    own_in,
    readable,
    rebuilt,
    together,
)
from perdure.domain.turn.recovery import Telling, messages_with_notes
from perdure.engine.models.pictures import with_pictures
from perdure.engine.models.roster import Backend
from perdure.engine.models.windows import WindowKey, Windows
from perdure.ports.records.history import Conversations
from perdure.ports.records.media import MediaLibrary
from perdure.ports.turns.turns import Claimed

CHAIN_MAX = 1_000_000
# Which share of a summariser's context the conversation may take.
READABLE_SHARE = 0.8
# Errands that get no tools: they look at a conversation without taking part in it.


class Prompted(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a request, about how many tokens it has, what it begins with and was made from
    (`basis`), and those of its texts that no journal holds."""

    request: ModelRequest
    tokens: int
    basis: Basis
    texts: tuple[KeptText, ...] = ()

    @property
    def origin(self) -> RequestOrigin:
        """Return what the request was made from, as it is stored."""
        return RequestOrigin(prefix=written_basis(self.basis), texts=self.texts)


class _Words(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the texts of a request beside its messages. `spoken` are the instructions, `own` those
    without what the turn brought, `own_tools` the tools without those that it brought, and `kept`
    the texts that no journal holds."""

    own: str = ""
    spoken: str = ""
    memory: str = ""
    tools: str = ""
    own_tools: str = ""
    kept: tuple[KeptText, ...] = ()


class Prompts:
    """Makes requests, and keeps the encoded windows that the next turns begin with."""

    def __init__(
        self,
        conversations: Conversations,
        media: MediaLibrary,
        *,
        windows: Windows,
        personas: Callable[[], Mapping[str, str]] = dict,
        platform: Callable[[str], str] = lambda adapter: adapter,
        zone: str = "UTC",
    ) -> None:
        self._conversations = conversations
        self._media = media
        self._personas = personas
        self._platform = platform
        self._windows = windows
        self._zone = zone
        # The windows that were kept for an errand alone, by the errand's turn.
        self._passing: dict[TurnId, list[WindowKey]] = {}

    async def request(
        self, backend: Backend, claimed: Claimed, *, turn: Sequence[Recorded], telling: Telling
    ) -> Prompted:
        """Return the request for the turn's next model call, with the notes that this attempt
        carries. Raises `Corrupt` if the messages break a rule of the providers."""
        queued = next(r.event for r in turn if isinstance(r.event, TurnQueued))
        zone = self._zone_told(backend, claimed, queued)
        own = messages_with_notes(turn, telling)
        window = await self._window(
            backend, claimed, zone, kind=queued.kind, own_pictures=picture_count(own)
        )
        times, _ = times_of(turn, zone, before=window.at)
        before = window.open_calls
        if times or before:
            own = messages_with_notes(turn, telling, times=times, before=before)
        tokens_max = 0
        if queued.kind.is_errand:
            window, tokens_max = await self._readable(window, backend, claimed, turn, queued.kind)
        messages = await self._with_pictures(backend, own)
        words = self._words(backend, claimed, queued)
        request = assemble(
            window,
            messages,
            instructions=together(words.spoken, words.memory),
            context=queued.context,
            tools=words.tools,
            options=backend.fitting(queued.asking),
            purpose=queued.kind if queued.kind.is_errand else "",
        )
        tokens = window.tokens + tokens_of_messages(request.messages)
        given = request.context + request.tools
        return Prompted(
            request=request,
            tokens=tokens + tokens_of(request.instructions) + tokens_of(given),
            texts=words.kept,
            basis=Basis(
                agent=backend.name,
                instructions=text_digest(words.spoken),
                memory=text_digest(words.memory),
                tools=text_digest(words.tools),
                own_tools=text_digest(words.own_tools) if queued.tools else "",
                view=window.source.view(claimed.view),
                own=text_digest(words.own) if queued.instructions else "",
                upto=turn[-1].seq,
                source=and_then(window.source, turn),
                has_vision=backend.has_vision,
                tokens_max=tokens_max,
                old_pictures=window.old_pictures,
                zone=zone,
                has_thoughts=has_thoughts(messages),
            ),
        )

    def _zone_told(self, backend: Backend, claimed: Claimed, queued: TurnQueued) -> str:
        """Return the time zone in which a turn is told times, or an empty string if it is not told
        where it is: an errand and a call without a conversation are nowhere."""
        is_somewhere = claimed.is_listed and not queued.kind.is_errand
        return self._zone if backend.has_context and is_somewhere else ""

    def _words(self, backend: Backend, claimed: Claimed, queued: TurnQueued) -> _Words:
        """Return the texts of a request beside its messages."""
        own_tools = backend.tools.schemas() if queued.kind.has_tools else ""
        tools = merged_tools(own_tools, queued.tools)
        if queued.kind is TurnKind.STICKER:
            # Everybody gets the description, so nobody's instructions or memories may get into it.
            return _Words()
        zone = self._zone_told(backend, claimed, queued)
        where = self._where(claimed, zone) if zone else ""
        own = together(backend.instructions, self._personas().get(queued.persona, ""), where)
        # Whoever gives work to another agent decides what of the person it is told.
        is_told = backend.has_memory and queued.kind is not TurnKind.DELEGATED
        memories = claimed.memories if is_told else ()
        memory = memory_section(memories)
        owner = claimed.conversation if claimed.is_shared else claimed.principal
        lines = tuple(sorted((each.id, each.changed_at) for each in memories))
        return _Words(
            own=own,
            spoken=together(own, queued.instructions),
            memory=memory,
            tools=tools,
            own_tools=own_tools,
            kept=(
                *kept_text(own, owner=owner if where else ""),
                *kept_text(memory, owner=owner, lines=lines),
                *kept_text(own_tools),
            ),
        )

    def _where(self, claimed: Claimed, zone: str) -> str:
        """Return what the model is told of the place that the turn's answer goes to."""
        address = claimed.address
        platform = self._platform(address.adapter)
        return whereabouts_section(address, claimed.whereabouts, zone, platform=platform)

    async def _window(
        self,
        backend: Backend,
        claimed: Claimed,
        zone: str,
        *,
        kind: TurnKind,
        own_pictures: int | None = None,
    ) -> Window:
        """Return the encoded history that ends at the parent of a turn of this kind. It is kept,
        but that of an errand only until the turn is over. How many old pictures it leaves out
        depends on `own_pictures`, those of the turn itself; with None, any window will do."""
        turn, view = claimed.parent, claimed.view
        if turn is None:
            return Window()
        is_passing, is_told = kind.is_errand, kind.is_told_overheard
        # What an errand is told has no times in it, and some are not told what others said. So its
        # window is not the conversation's.
        is_apart = is_passing and (backend.has_context or not is_told)
        key = (backend.agent, claimed.lease.turn if is_apart else turn)
        known = self._windows.get(key, view)
        if known is not None and (
            own_pictures is None
            or known.old_pictures == _old_in(backend, known.pictures, own_pictures)
        ):
            return known
        chain = await self._conversations.window(turn, limit=CHAIN_MAX)
        times, at = times_of((each for events in chain for each in events), zone)
        messages = history_of(chain, times=times, with_overheard=is_told)
        pictures = picture_count(messages)
        old = _old_in(backend, pictures, own_pictures or 0)
        begun = Window(
            source=source_of(chain),
            at=at,
            pictures=pictures,
            old_pictures=old,
            open_calls=open_after(chain),
        )
        told = await self._with_pictures(backend, messages, old=old)
        window = extend(begun, told, encode=backend.agent.encode)
        if is_passing:
            self._passing.setdefault(claimed.lease.turn, []).append(key)
        self._windows.keep(key, view, window)
        return window

    async def _readable(
        self,
        window: Window,
        backend: Backend,
        claimed: Claimed,
        turn: Sequence[Recorded],
        kind: TurnKind,
    ) -> tuple[Window, int]:
        """Shorten the history that an errand looks back at, if the model cannot read all of it.
        Returns the history, and the number of tokens that it was shortened to, or 0."""
        refused = refusal_of([recorded.event for recorded in turn])
        limit = (
            min(backend.context_tokens, limit_of(refused)) if refused else backend.context_tokens
        )
        tokens_max = int(limit * READABLE_SHARE)
        if window.tokens <= tokens_max or claimed.parent is None:
            return window, 0
        chain = await self._conversations.window(claimed.parent, limit=CHAIN_MAX)
        messages = history_of(chain, with_overheard=kind.is_told_overheard)
        fitting = readable(messages, tokens_max=tokens_max)
        begun = Window(source=source_of(chain), open_calls=window.open_calls)
        return extend(begun, fitting, encode=backend.agent.encode), tokens_max

    async def told(self, turn: TurnId) -> list[PromptMessage]:
        """Return what the model is told of everything up to a turn. Pictures are not filled in."""
        chain = await self._conversations.window(turn, limit=CHAIN_MAX)
        final, newest = weave(None, history_of(chain))
        return [*final, newest] if newest else []

    async def tokens_before(self, backend: Backend, claimed: Claimed) -> int:
        """Return about how many tokens the history before a turn has."""
        queued = next(r.event for r in claimed.events if isinstance(r.event, TurnQueued))
        zone = self._zone_told(backend, claimed, queued)
        window = await self._window(backend, claimed, zone, kind=queued.kind)
        return window.tokens + tokens_of_messages([window.newest] if window.newest else [])

    async def encoded_again(self, asked: StoredRequest, backend: Backend) -> ModelRequest:
        """Make the last request of a turn again, encoded by the agent of this backend."""
        sees = msgspec.structs.replace(backend, has_vision=asked.basis.has_vision)
        history = history_in(asked)
        if not asked.basis.tokens_max:
            history = await self._with_pictures(sees, history)
        own = await self._with_pictures(sees, own_in(asked))
        return rebuilt(asked, history, own, encode=backend.agent.encode)

    async def settled(
        self, backend: Backend, claimed: Claimed, *, turn: Sequence[Recorded]
    ) -> None:
        """Extend the parent's window by a turn that has just been settled."""
        parent, view = claimed.parent, claimed.view
        if not claimed.is_listed or not turn:
            return  # no turn follows a call without a conversation
        known = Window() if parent is None else self._windows.get((backend.agent, parent), view)
        if known is None:
            return
        queued = next(r.event for r in turn if isinstance(r.event, TurnQueued))
        if queued.kind.is_errand:
            return  # no turn follows it, and its parent's window belongs to another session
        own = [recorded for recorded in turn if recorded.turn == queued.turn]
        if leaves_something_out(own):
            return  # what is told of the turns has changed, so the next request is made anew
        zone = self._zone_told(backend, claimed, queued)
        times, at = times_of(own, zone, before=known.at)
        said = messages_of(own, times=times, before=known.open_calls)
        messages = await self._with_pictures(backend, said)
        if parent is not None:
            self._windows.forget((backend.agent, parent))
        known = msgspec.structs.replace(
            known,
            source=and_then(known.source, own),
            at=at,
            pictures=known.pictures + picture_count(said),
            open_calls=left_open(own),
        )
        grown = extend(known, messages, encode=backend.agent.encode)
        self._windows.keep((backend.agent, queued.turn), view, grown)

    def is_over(self, turn: TurnId) -> None:
        """Drop the windows that were kept for this turn alone, because it has ended here."""
        for key in self._passing.pop(turn, ()):
            self._windows.forget(key)

    async def _with_pictures(
        self, backend: Backend, messages: Sequence[PromptMessage], *, old: int = 0
    ) -> list[PromptMessage]:
        """Fill in the bytes of pictures if the model can see, without the oldest ones. Other files
        are told in words."""
        if not backend.has_vision:
            return list(messages)
        return await with_pictures(without_old(messages, old), self._media)


def _old_in(backend: Backend, before: int, own: int) -> int:
    """Return how many of the pictures before a turn its requests leave out."""
    if not backend.has_vision:
        return 0
    return old_pictures(before=before, own=own, kept=backend.pictures)
