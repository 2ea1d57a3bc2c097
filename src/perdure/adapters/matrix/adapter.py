"""Implements the `Platform` port for one account on one homeserver: sending, and the life of the
connection. `receive.py` holds the receiving side."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from perdure.adapters.matrix import files, render
from perdure.adapters.matrix.events import MESSAGE
from perdure.adapters.matrix.hearing.rooms import Rooms
from perdure.adapters.matrix.login.keeping import Folder
from perdure.adapters.matrix.login.signing_in import WhoAmI, sign_in
from perdure.adapters.matrix.manifest import ENCRYPTION_EXTRA, NAME, MatrixSettings
from perdure.adapters.matrix.marks import Marks
from perdure.adapters.matrix.receive import Intake
from perdure.adapters.matrix.wire import (
    CLIENT,
    SIGNED_OUT,
    UNKNOWN_RELATION,
    Wire,
    room_path,
    segment,
)
from perdure.domain.address import Address
from perdure.domain.delivery import GONE, Capabilities, Pace, Rate, Streaming
from perdure.domain.errors import NotFound, PerdureError, Permanent, Transient
from perdure.domain.ids import PartId
from perdure.domain.markdown.units import TextUnit
from perdure.domain.reading.sound import seconds_of
from perdure.ports.platform.adapter import (
    ACCOUNT_WAIT,
    Delete,
    Edit,
    Effect,
    HookRequest,
    HookResponse,
    Inlet,
    Post,
    Preview,
    React,
    Receipt,
    Sought,
    ThreadGone,
    Unrenderable,
    Unsupported,
    Upload,
)
from perdure.ports.platform.manifest import AdapterContext
from perdure.ports.platform.settings import AdapterSettings

if TYPE_CHECKING:
    from perdure.adapters.matrix.encryption import Vault

# How long a room shows the bot as typing after one signal. It is longer than `typing_s` below, so
# that the next signal arrives before this one expires.
TYPING_MS: Final = 30_000
# Error codes with which a server refuses the form of an event, such as its HTML.
_FORM_REFUSED: Final = frozenset({"M_BAD_JSON", "M_INVALID_PARAM"})
# Homeservers forget keys after a while: Synapse after a day. This is less, because the clocks may
# differ.
KEY_S: Final = 20 * 3600
CAPABILITIES: Final = Capabilities(
    takes_key=True,
    key_s=KEY_S,
    can_edit=True,
    can_delete=True,
    can_react=True,
    streaming=Streaming.EDIT,
    text_max=render.TEXT_BYTES_MAX,
    unit=TextUnit.BYTES,
    typing_s=25,
    upload_bytes_max=files.UPLOAD_BYTES_MAX,
    pace=Pace(account=Rate(10, 1), place=Rate(1, 1), preview_s=1.0),
)


class _Sent(msgspec.Struct, frozen=True):
    event_id: str


class _Seen(msgspec.Struct, frozen=True):
    """Holds the content of an event that was asked for. It is empty when the event was deleted."""

    content: dict[str, msgspec.Raw] = {}


class _Profile(msgspec.Struct, frozen=True):
    displayname: str | None = None


def make(settings: AdapterSettings, context: AdapterContext) -> "Matrix":
    """Make the adapter from its settings. This is the factory that the manifest names."""
    assert isinstance(settings, MatrixSettings)
    return Matrix(settings, context)


class Matrix:
    """Implements the `Platform` port for one bot."""

    def __init__(self, settings: MatrixSettings, context: AdapterContext) -> None:
        self.name = context.name or NAME
        self._settings = settings
        self._context = context
        self._wire = Wire(settings.homeserver, context.outgoing)
        self._folder = Folder(context.folder)
        self._rooms = Rooms()
        self._marks = Marks(self._wire, self._rooms)
        self._vault: Vault | None = None
        self._my_name = ""
        self._capabilities = CAPABILITIES
        self._typing: set[str] = set()

    def capabilities(self, address: Address) -> Capabilities:
        return self._capabilities

    def size(self, text: str) -> int:
        return render.size(text, is_escaped=self._settings.encryption)

    async def connect(self) -> str:
        """Sign in, and learn the bot's name, the server's limit for files, and the keys. Returns
        the bot's id."""
        self._wire.open()
        me = await sign_in(self._settings, self._wire, self._folder, self._context.entropy)
        self._rooms.me = me.user_id
        self._my_name = await self._display_name(me.user_id)
        self._capabilities = msgspec.structs.replace(
            CAPABILITIES, upload_bytes_max=await files.upload_bytes_max(self._wire)
        )
        if self._settings.encryption and self._vault is None:
            self._vault = self._open_vault(me)
        return me.user_id

    async def receive(self, inlet: Inlet) -> None:
        """Read the rooms until the connection fails. A lost sign-in can be waited for only with a
        password, because a refused token needs a person to correct it."""
        intake = Intake(
            self._wire,
            self._rooms,
            self._folder,
            settings=self._settings,
            clock=self._context.clock,
            nonce=self._nonce(),
            my_name=self._my_name,
            vault=self._vault,
        )
        try:
            with self._waiting_for_sign_in(can_wait=self._settings.password is not None):
                await intake.run(inlet)
        except NotFound as error:
            raise Transient(
                f"The homeserver lost what it was asked for: {error.message}"
            ) from error

    async def answer(self, request: HookRequest, inlet: Inlet) -> HookResponse:
        """Answer every hook request with 404: a homeserver is polled and never calls us."""
        return HookResponse(status=404)

    def fetch(self, reference: str) -> AsyncIterator[bytes]:
        return files.fetch(self._wire, reference)

    async def close(self) -> None:
        await self._wire.close()
        await self._folder.settled()
        if self._vault is not None:
            self._vault.close()
            self._vault = None

    async def perform(self, effect: Effect) -> Receipt:
        with self._waiting_for_sign_in():
            match effect:
                case Post():
                    receipt = await self._post(effect)
                case Edit():
                    receipt = await self._edit(effect)
                case Delete():
                    await self._delete(effect)
                    receipt = GONE
                case Upload():
                    receipt = await self._upload(effect)
                case React():
                    room, event = effect.address.place, effect.external_id
                    receipt = await self._marks.put(room, event, effect.emoji, self._nonce())
                case _:
                    assert_never(effect)
        return Receipt(external_id=receipt)

    async def find(self, sought: Sought) -> Receipt | None:
        """Refuse the question, because a homeserver cannot be searched by key. A part in doubt is
        sent again under its key."""
        raise Permanent("A homeserver cannot be asked by key; send it again under the same one.")

    async def preview(self, preview: Preview) -> str:
        """Show a growing answer by editing one message. Returns the receipt of the message."""
        if preview.streaming is not Streaming.EDIT:
            raise Unsupported("A room shows a growing answer by edits only.")
        with self._waiting_for_sign_in():
            if preview.receipt:
                await self._replace(preview.address, preview.receipt, preview.text)
                return preview.receipt
            return await self._say(
                preview.address, preview.text, key=preview.key, reply_to=preview.reply_to
            )

    async def typing(self, address: Address) -> None:
        """Show that the bot is typing, and remember the room so that the signal can be taken
        back."""
        with self._waiting_for_sign_in():
            await self._tell_typing(address.place, {"typing": True, "timeout": TYPING_MS})
        self._typing.add(address.place)

    async def _post(self, post: Post) -> str:
        await self._stop_typing(post.address)
        return await self._say(
            post.address,
            post.text,
            key=post.key,
            reply_to=post.reply_to,
            is_plain=post.is_plain,
        )

    async def _say(
        self,
        address: Address,
        text: str,
        *,
        key: PartId,
        reply_to: str,
        is_plain: bool = False,
    ) -> str:
        content = render.message(text, thread=address.thread, reply_to=reply_to, is_plain=is_plain)
        return await self._put_into(address, content, key)

    async def _put_into(self, address: Address, content: render.Words, key: PartId) -> str:
        """Send a new event. Raises `ThreadGone` where the server does not know the thread."""
        try:
            return await self._put(address.place, content, key, is_repeatable=False)
        except NotFound as error:
            if error.code != UNKNOWN_RELATION or not address.thread:
                raise
            raise ThreadGone(
                f"{error.message} What the thread began with is not there, so nothing can stand "
                "in it."
            ) from error

    async def _edit(self, edit: Edit) -> str:
        """Replace the text of a message. Raises `NotFound` if the message was deleted: a server
        accepts an edit of a deleted message and shows it to nobody, so we ask for the message
        first."""
        path = room_path(edit.address.place, f"event/{segment(edit.receipt)}")
        if not (await self._wire.call("GET", path, answer=_Seen)).content:
            raise NotFound("The message was deleted.")
        await self._stop_typing(edit.address)
        await self._replace(edit.address, edit.receipt, edit.text, is_plain=edit.is_plain)
        return edit.receipt

    async def _replace(
        self, address: Address, receipt: str, text: str, *, is_plain: bool = False
    ) -> None:
        # The edit needs a key of its own. Under the key of the message, the server would take it
        # for a repetition of that message and ignore it.
        content = render.edit(text, of=receipt, is_plain=is_plain)
        await self._put(address.place, content, self._nonce(), is_repeatable=True)

    async def _delete(self, delete: Delete) -> None:
        path = room_path(
            delete.address.place, f"redact/{segment(delete.receipt)}/{segment(self._nonce())}"
        )
        with contextlib.suppress(NotFound):
            await self._wire.call("PUT", path, body={}, answer=msgspec.Raw)

    async def _upload(self, upload: Upload) -> str:
        """Upload a file and post a message that shows it. In an encrypted room the file is
        encrypted first."""
        room = upload.address.place
        data, mime, keys = upload.data, upload.mime, None
        if await self._is_encrypted(room):
            from perdure.adapters.matrix.encryption import seal_file  # noqa: PLC0415 - an extra

            data, keys = seal_file(upload.data)
            mime = "application/octet-stream"
        url = await files.store(self._wire, data, mime=mime, name="" if keys else upload.name)
        file = render.Attached(
            name=upload.name,
            mime=upload.mime,
            size=len(upload.data),
            url=url,
            voice_s=seconds_of(upload.data) if upload.is_voice else None,
        )

        def content(*, is_plain: bool) -> render.FileMessage:
            return render.file_message(
                file,
                keys=keys,
                caption=upload.caption,
                relates_to=render.relation(thread=upload.address.thread, reply_to=upload.reply_to),
                is_plain=is_plain,
            )

        await self._stop_typing(upload.address)
        try:
            return await self._put_into(upload.address, content(is_plain=False), upload.key)
        except Unrenderable:
            # The server refused the event, so nothing was shown. It is safe to send the same words
            # under the same key without formatting.
            return await self._put_into(upload.address, content(is_plain=True), upload.key)

    async def _put(self, room: str, words: render.Words, key: str, *, is_repeatable: bool) -> str:
        """Send an event and return its id. The server remembers `key` for this device: the same key
        sent again is the same event, so a repetition shows nothing twice."""
        kind = MESSAGE
        content: object = words
        if await self._is_encrypted(room):
            assert self._vault is not None
            kind, content = await self._vault.seal(room, kind, words)
        path = room_path(room, f"send/{kind}/{segment(key)}")
        try:
            sent = await self._wire.call(
                "PUT", path, body=content, answer=_Sent, is_repeatable=is_repeatable
            )
        except Permanent as error:
            if error.code not in _FORM_REFUSED or not render.has_form(words):
                raise
            raise Unrenderable(error.message) from error
        return sent.event_id

    async def _is_encrypted(self, room: str) -> bool:
        """Tell whether a room is encrypted. Raises `Permanent` if it is and we cannot encrypt:
        nothing is ever sent as plain text to people who expect encryption."""
        known = self._rooms.get(room)
        is_encrypted = known.is_encrypted if known else await self._asked_is_encrypted(room)
        if is_encrypted and self._vault is None:
            raise Permanent(
                "The room is encrypted. Set encryption = true in [adapters.matrix] and install "
                f"'perdure[{ENCRYPTION_EXTRA}]'."
            )
        return is_encrypted

    async def _asked_is_encrypted(self, room: str) -> bool:
        """Ask the server whether a room is encrypted, for a room that no sync has told us about."""
        try:
            path = room_path(room, "state/m.room.encryption")
            await self._wire.call("GET", path, answer=msgspec.Raw)
        except NotFound:
            return False
        return True

    async def _stop_typing(self, address: Address) -> None:
        """Take back the typing signal, which would otherwise stay for some seconds. This comes
        before the message: if the server names a wait here, the message must wait as well. Other
        errors do not matter."""
        if address.place not in self._typing:
            return
        try:
            await self._tell_typing(address.place, {"typing": False})
        except PerdureError as error:
            if error.code == ACCOUNT_WAIT:
                raise
        self._typing.discard(address.place)

    async def _tell_typing(self, room: str, state: Mapping[str, object]) -> None:
        path = room_path(room, f"typing/{segment(self._rooms.me)}")
        await self._wire.call("PUT", path, body=state, answer=msgspec.Raw)

    async def _display_name(self, user: str) -> str:
        """Return the bot's display name, or an empty string where the server does not tell it."""
        try:
            path = f"{CLIENT}/profile/{segment(user)}/displayname"
            profile = await self._wire.call("GET", path, answer=_Profile)
        except (NotFound, Permanent):
            return ""
        return profile.displayname or ""

    def _open_vault(self, me: WhoAmI) -> "Vault":
        if not me.device_id:
            raise Permanent("This access token has no device; encryption needs one of a sign-in.")
        try:
            from perdure.adapters.matrix.encryption import Vault  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise Permanent(
                f"encryption = true needs more: pip install 'perdure[{ENCRYPTION_EXTRA}]', or "
                "remove it from [adapters.matrix]."
            ) from error
        return Vault(self._wire, self._folder.path, user=me.user_id, device=me.device_id)

    @contextlib.contextmanager
    def _waiting_for_sign_in(self, *, can_wait: bool = True) -> Iterator[None]:
        """Turn a lost sign-in (`Permanent`) into `Transient`, if `can_wait`. The next `connect`
        signs in again, perhaps after the configuration was corrected, and what is to be sent can
        wait until then."""
        try:
            yield
        except Permanent as error:
            if error.code != SIGNED_OUT or not can_wait:
                raise
            raise Transient(
                f"{error.message.rstrip('.')}; it is tried again once the bot has signed in again"
            ) from error

    def _nonce(self) -> str:
        return self._context.entropy.random_bytes(10).hex()
