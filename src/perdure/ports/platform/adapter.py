"""A chat platform, in three seams: what goes out, what comes in, and both together."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities, Streaming
from perdure.domain.errors import Permanent
from perdure.domain.ids import PartId
from perdure.domain.inbound.arrivals import Arrival


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """One part to show, as markdown. `key` is the same at every try: where the platform takes one,
    it is the idempotency key. `reply_to` is the external id of the message that it answers;
    `choices` are words to offer as buttons, a click on which arrives as a message of that word.
    `after` is the receipt of the part before it, where it continues one. `is_repeat`: it was tried
    before, and may have arrived. `is_plain`: the platform has refused how it was written, so the
    text is shown letter by letter, without any formatting."""

    key: PartId
    address: Address
    text: str
    reply_to: str = ""
    choices: tuple[str, ...] = ()
    after: str = ""
    is_repeat: bool = False
    is_plain: bool = False


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """Show `text` in the place of what `receipt` stands for. `shown` is what a native stream has
    been given so far; the edit also ends that stream. `is_plain` as in `Post`."""

    key: PartId
    address: Address
    receipt: str
    text: str
    shown: str = ""
    choices: tuple[str, ...] = ()
    is_plain: bool = False


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Take away what `receipt` stands for; it is no failure if that is gone already."""

    address: Address
    receipt: str


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """One file to show; the rest as in `Post`."""

    key: PartId
    address: Address
    name: str
    mime: str
    data: bytes
    caption: str = ""
    reply_to: str = ""
    after: str = ""
    is_repeat: bool = False


class React(msgspec.Struct, frozen=True, kw_only=True):
    """Mark a person's message, named by its external id. An empty `emoji` takes the mark away."""

    address: Address
    external_id: str
    emoji: str


Effect = Post | Edit | Delete | Upload | React


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The platform's proof: its own id of what it now shows."""

    external_id: str


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """A part that was sent and whose answer was lost. `text` is the markdown that it was to show,
    or the caption of the file `name`; `tried_at` is when it was sent, by our clock. The messages
    behind `owned` belong to other parts, so none of them is this one, whatever it shows."""

    key: PartId
    address: Address
    text: str = ""
    name: str = ""
    tried_at: int = 0
    owned: frozenset[str] = frozenset()


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """A growing answer as it stands. `receipt` is empty the first time; `shown` is the text of the
    last preview that worked; `streaming` is how to show it."""

    key: PartId
    address: Address
    text: str
    streaming: Streaming
    receipt: str = ""
    shown: str = ""
    reply_to: str = ""


# The code of a `Transient` whose wait is for the whole account, not for one place.
ACCOUNT_WAIT: Final = "account_wait"


class Unsupported(Permanent):
    """The server does not know this way of streaming: the gateway takes the next best from now
    on."""

    default_code = "unsupported"


class ThreadGone(Permanent):
    """The thread that a part was to stand in is not there, or not yet: nothing was shown. It is
    tried once more, and then shown in the place itself."""

    default_code = "thread_gone"


class Unrenderable(Permanent):
    """The platform refuses how a text is written, not what it says: nothing was shown. The same
    text is sent without any formatting."""

    default_code = "unrenderable"


class Adapter(Protocol):
    """Performs one platform effect at a time.

    Guarantees: `perform` returns only with the platform's receipt (of an edit: the same one; of
    what leaves none: any word); `find` asks the platform whether a part arrived and returns the
    receipt of what is provably that part (by its key, or by its exact text, author and time), or
    None when it certainly did not arrive; `preview` returns the receipt of the bubble, empty
    for drafts; `size` is how long a text becomes in the platform's form, in the unit of its
    capabilities; nothing in a text can address people as a group (`@everyone`, `<!channel>`).
    Requires: `capabilities` hold for the place addressed and are cheap to ask; `find` is called
    only where `can_find`, `Edit` only where `can_edit`, and so on.
    Raises: `Transient` (not sent, try later; `retry_after_s` where the platform named it),
    `Permanent` (never), `NotFound` (what was to be edited is gone), `Ambiguous` (may have arrived;
    from `find`: the platform cannot tell), `ThreadGone`, `Unrenderable`, `Unsupported` (`preview`
    only). A `Transient` of any verb is heeded: nothing goes there until its wait is over.
    After a crash: the same key may be offered again only where `takes_key`, or after `find`; edits,
    deletions and reactions may always be repeated.
    """

    name: str

    def capabilities(self, address: Address) -> Capabilities: ...

    def size(self, text: str) -> int: ...

    async def perform(self, effect: Effect) -> Receipt: ...

    async def find(self, sought: Sought) -> Receipt | None: ...

    async def preview(self, preview: Preview) -> str: ...

    async def typing(self, address: Address) -> None: ...


class ArrivalReading(msgspec.Struct, frozen=True, kw_only=True):
    """Says how the rest of an arrival is made, once its sender may speak.

    `whole` returns the same arrival with its text, quote, forwards, files and label, or None where
    it turns out that nobody has said anything. `name` returns what the sender is called; an adapter
    gives it where that has to be asked for. `payload` is what came, as it came: it is put aside
    where `whole` breaks.
    """

    whole: Callable[[], Awaitable[Arrival | None]]
    payload: bytes
    name: Callable[[], Awaitable[str]] | None = None


class Inlet(Protocol):
    """Where a platform hands over what people do there.

    Guarantees: `take` returns once the arrival is durable or is none of our business: only then may
    the platform be told that we have it. The same arrival again changes nothing. With a `reading`,
    `arrival` is an envelope: `reading.whole` is awaited only once it is decided that the sender may
    speak, and `reading.name` only for a stranger who may ask to be let in. If one of them breaks,
    its `payload` is kept as with `spoil`. `spoil` keeps what no arrival can be made of, as it came,
    for a person to look at. `handling` says whether something that came may be read: not if process
    after process has died over it, and then it is kept as with `spoil`.
    Requires: `alive` is called whenever anything at all came from the platform (an empty poll, a
    heartbeat): health is proved by traffic. What came is taken inside of `handling`, one after
    another. An envelope holds what the decision needs, at a cost that is linear in the length of
    what came: kind, ids, place, thread, target, album, agent, `is_addressed`, the sender's id,
    whether it is a bot, its roles, and its name where the platform tells that along. The whole
    arrival agrees with its envelope in all of these; the thread of an edit or a deletion may be
    found by reading. Only an adapter that has nothing to convert hands over a whole arrival without
    a `reading`.
    Raises: `Transient` or `Ambiguous` when the store cannot take it, or `reading` has raised that:
    do not acknowledge, and offer it again; `Rejected` when it can never be taken (the person was
    told): acknowledge.
    After a crash: what was not acknowledged is offered again by the platform, and is read again.
    """

    async def take(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None: ...

    async def spoil(self, external_id: str, payload: str, why: str) -> None: ...

    def handling(self, external_id: str, payload: bytes) -> AbstractAsyncContextManager[bool]: ...

    def alive(self) -> None: ...


class HookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request to `/hooks/{adapter}/{path}`. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes


class HookResponse(msgspec.Struct, frozen=True, kw_only=True):
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    # Work that the platform must not wait for; done once the response went out.
    afterwards: Callable[[], Awaitable[None]] | None = None


class Receiver(Protocol):
    """Where a platform's messages come from.

    Guarantees: `connect` proves that the platform takes our credentials and returns the bot's
    stable account id; `receive` hands over everything in order until it is cancelled, and raises
    when the connection is lost; `answer` serves requests of the outside to our hook, verifying
    their signature before anything else; `fetch` brings the bytes of a file by the reference that
    came with an arrival; `close` lets go of everything.
    Requires: `connect` before anything else, and again after `receive` has raised; the account id
    never changes.
    Raises: `Transient` when the platform cannot be reached now; `Permanent` when it refuses us (a
    wrong token), with what to do; `fetch` also `Permanent` when the file is gone or too large.
    After a crash: the platform offers again what was not acknowledged; nothing is kept here.
    """

    async def connect(self) -> str: ...

    async def receive(self, inlet: Inlet) -> None: ...

    async def answer(self, request: HookRequest, inlet: Inlet) -> HookResponse: ...

    def fetch(self, reference: str) -> AsyncIterator[bytes]: ...

    async def close(self) -> None: ...


class Platform(Adapter, Receiver, Protocol):
    """One configured account of a platform."""
