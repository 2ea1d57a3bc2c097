"""Defines the ports of a chat platform: what goes out, what comes in, and both together."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities, Streaming
from perdure.domain.errors import Permanent
from perdure.domain.ids import PartId, QuestionId
from perdure.domain.inbound.arrivals import Arrival


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """Asks to show one part, given as markdown. `key` is the same at every try, for platforms that
    take an idempotency key. `reply_to` is the external id of the message that it answers. `choices`
    are words to offer as buttons. With a `question`, the press of a button arrives as a `Press`
    that names this question and the number of the choice; otherwise as a message with that word.
    `after` is the receipt of the part that it continues, if any. `is_repeat`: it was tried before,
    and may have arrived. `is_plain`: the platform has refused the markdown, so show the text as it
    is, without formatting."""

    key: PartId
    address: Address
    text: str
    reply_to: str = ""
    choices: tuple[str, ...] = ()
    question: QuestionId | None = None
    after: str = ""
    is_repeat: bool = False
    is_plain: bool = False


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """Asks to show `text` in place of the message with this receipt. `shown` is the text that a
    native stream was given so far; the edit also ends that stream. `choices` replace the buttons of
    the message: without any, it has none afterwards. `question` and `is_plain` as in `Post`."""

    key: PartId
    address: Address
    receipt: str
    text: str
    shown: str = ""
    choices: tuple[str, ...] = ()
    question: QuestionId | None = None
    is_plain: bool = False


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Asks to delete the message with this receipt. It is no failure if it is gone already."""

    address: Address
    receipt: str


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """Asks to show one file. `is_voice`: it is speech in an Ogg file, to be shown as a voice
    message where the platform has these. The other fields are as in `Post`."""

    key: PartId
    address: Address
    name: str
    mime: str
    data: bytes
    is_voice: bool = False
    caption: str = ""
    reply_to: str = ""
    after: str = ""
    is_repeat: bool = False


class React(msgspec.Struct, frozen=True, kw_only=True):
    """Asks to mark a person's message, named by its external id. An empty `emoji` removes the
    mark."""

    address: Address
    external_id: str
    emoji: str


Effect = Post | Edit | Delete | Upload | React


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the platform's proof: its own id of what it shows now. `moved_to` is the id that the
    place of the effect's address has now, if the platform has said that it has another one."""

    external_id: str
    moved_to: str = ""


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a part that was sent and whose answer was lost. `text` is its markdown, or the
    caption of the file `name`; `tried_at` is when it was sent, by the gateway's clock. The messages
    with the receipts in `owned` belong to other parts, so none of them is this part, even if its
    text is the same."""

    key: PartId
    address: Address
    text: str = ""
    name: str = ""
    tried_at: int = 0
    owned: frozenset[str] = frozenset()


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """Asks to show a growing answer as it is now, in the way `streaming`. `receipt` is empty the
    first time; `shown` is the text of the last preview that succeeded."""

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
    """Says that the server does not know this way of streaming. The gateway uses the next best one
    from now on."""

    default_code = "unsupported"


class ThreadGone(Permanent):
    """Says that the thread of a part does not exist, or not yet, so nothing was shown. The part is
    tried once more, and then shown in the place itself."""

    default_code = "thread_gone"


class Unrenderable(Permanent):
    """Says that the platform refuses the form of a text, not its content, so nothing was shown.
    The same text is sent without formatting."""

    default_code = "unrenderable"


class Adapter(Protocol):
    """Sends to a platform. Each call does one thing, and neither retries, paces nor splits.

    Guarantees: nothing in a text can address people as a group (`@everyone`, `<!channel>`).
    Requires: an effect is asked for only where `capabilities` allow it.
    Raises: `Transient` (not sent, try later; `retry_after_s` if the platform has named a wait),
    `Permanent` (never), `NotFound` (the message to edit is gone), `Ambiguous` (it may have
    arrived), `ThreadGone`, `Unrenderable`. Once any verb has raised a wait, nothing is sent there
    until it is over.
    After a crash: the same key may be offered again only where `takes_key`, or after `find`; edits,
    deletions and reactions may always be repeated.
    """

    name: str

    def capabilities(self, address: Address) -> Capabilities:
        """Return what the platform can do at an address. Cheap, and true for that address."""

    def size(self, text: str) -> int:
        """Return how long a text becomes in the platform's form, in the unit of its
        capabilities."""

    async def perform(self, effect: Effect) -> Receipt:
        """Ask the platform for an effect, and return its receipt: of an edit the same one as
        before, of an effect that leaves none any word."""

    async def find(self, sought: Sought) -> Receipt | None:
        """Ask the platform whether a part has arrived. Requires `can_find`.

        Returns the receipt of what is provably that part: by its key, or by its exact text, author
        and time. Returns None if it certainly has not arrived. Raises `Ambiguous` if the platform
        cannot tell.
        """

    async def preview(self, preview: Preview) -> str:
        """Show a growing answer, and return the receipt of its bubble; an empty string for a draft.
        With a receipt, and for a draft, it may be asked for again after `Ambiguous`. Raises
        `Unsupported` if the server does not know this way of streaming."""

    async def typing(self, address: Address) -> None:
        """Show that something is being typed."""


class ArrivalReading(msgspec.Struct, frozen=True, kw_only=True):
    """Says how the rest of an arrival is read, once its sender may speak.

    `whole` returns the same arrival with its text, quote, forwards, files and label, or None if it
    turns out that nobody has said anything. `name` returns the sender's name; an adapter gives it
    if the name must be asked for. `payload` is what came from the platform, unchanged: it is put
    aside if `whole` fails unexpectedly.
    """

    whole: Callable[[], Awaitable[Arrival | None]]
    payload: bytes
    name: Callable[[], Awaitable[str]] | None = None


class Inlet(Protocol):
    """Takes over from a platform what people do there.

    Guarantees: the same arrival again changes nothing. No text is read before it is decided that
    its sender may speak.
    Requires: `alive` is called whenever anything came from the platform (an empty poll, a
    heartbeat), because health is proved by traffic. What came is taken inside `handling`, one after
    another.
    Raises: `Transient` or `Ambiguous` when the store cannot take it now: do not acknowledge it, and
    offer it again. `Rejected` when it can never be taken, and the person was told: acknowledge it.
    After a crash: the platform offers again what was not acknowledged, and it is read again.
    """

    async def take(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None:
        """Take one arrival. Returns once it is durable or refused; only then may the platform be
        told that it was received.

        With a `reading`, `arrival` is an envelope: `reading.whole` is awaited only if the sender
        may speak, and `reading.name` only for a stranger who may ask to be let in. If one of them
        fails unexpectedly, the `payload` is kept as with `spoil`; a `Transient` or `Ambiguous` that
        it raises is raised to the caller.

        Requires an envelope that holds what the decision needs, at a cost that is linear in the
        length of what came: kind, ids, place, thread, target, album, agent, `is_addressed`, the
        sender's id, whether it is a bot, its roles, its name and the group's label if the platform
        tells them at once. The whole arrival agrees with its envelope in all of these; only the
        thread of an edit or a deletion may be found by reading. An adapter gives no `reading` only
        if it has nothing to convert.
        """

    async def spoil(self, external_id: str, payload: str, why: str) -> None:
        """Keep something of which no arrival can be made, unchanged, for a person to look at."""

    def handling(self, external_id: str, payload: bytes) -> AbstractAsyncContextManager[bool]:
        """Wrap the handling of something that came. Yields whether it may be read: not if
        several processes have died while handling it. In that case it was kept as with `spoil`."""

    def alive(self) -> None:
        """Note that something came from the platform."""


class HookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Holds an HTTP request to `/hooks/{adapter}/{path}`. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes


class HookResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the answer to a `HookRequest`."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    # Work that the platform must not wait for. It is done after the response was sent.
    afterwards: Callable[[], Awaitable[None]] | None = None


class Receiver(Protocol):
    """Receives from a platform.

    Guarantees: everything that people do there is handed over, in order.
    Requires: `connect` before anything else, and again after `receive` has ended.
    Raises: `Transient` when the platform cannot be reached now; `Permanent` when it refuses the
    gateway (a wrong token), with what to do.
    After a crash: the platform offers again what was not acknowledged; nothing is kept here.
    """

    async def connect(self) -> str:
        """Prove that the platform takes the credentials. Returns the bot's account id, which never
        changes."""

    async def receive(self, inlet: Inlet) -> None:
        """Hand over everything that comes, until cancelled. Raises when the connection is lost."""

    async def answer(self, request: HookRequest, inlet: Inlet) -> HookResponse:
        """Answer a request to the platform's web hook. Its signature is verified before anything
        else."""

    def fetch(self, reference: str) -> AsyncIterator[bytes]:
        """Yield the bytes of a file, by the reference that came with an arrival. Raises `Permanent`
        if the file is gone or too large. See `Fetcher`."""

    async def close(self) -> None:
        """Close all connections."""


class Platform(Adapter, Receiver, Protocol):
    """Represents one configured account of a platform, with both directions.

    Guarantees, Requires, Raises, After a crash: those of `Adapter` and of `Receiver`.
    """
