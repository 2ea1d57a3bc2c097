"""Provides a scripted chat platform for the crash simulator. It offers each message until it is
acknowledged, and remembers what it was asked to show."""

import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import assert_never

import msgspec

from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities
from perdure.domain.errors import Ambiguous, NotFound, Permanent, Transient
from perdure.domain.ids import PartId, QuestionId
from perdure.domain.inbound.arrivals import FileReference, Press
from perdure.domain.kinds import UpdateKind
from perdure.domain.markdown.units import size_of
from perdure.ports.platform.adapter import (
    ACCOUNT_WAIT,
    Delete,
    Edit,
    Effect,
    Post,
    Preview,
    React,
    Receipt,
    Sought,
    Upload,
)
from perdure.ports.system.clock import Clock

_PlatformFailure = Transient | Permanent | Ambiguous | NotFound


def _effect_of(preview: Preview) -> Effect:
    """Return the post or edit by which this platform shows a preview."""
    if not preview.receipt:
        return Post(key=preview.key, address=preview.address, text=preview.text)
    return Edit(
        key=preview.key, address=preview.address, receipt=preview.receipt, text=preview.text
    )


class PersonAct(msgspec.Struct, frozen=True, kw_only=True):
    """Records what a person did: wrote a message, edited or deleted the one named by `target`, or
    pressed a button. `by` names the person."""

    id: str
    place: str
    text: str = ""
    kind: str = "message"
    target: str = ""
    files: tuple[FileReference, ...] = ()
    album: str = ""
    thread: str = ""
    by: str = "person"
    press: Press | None = None


class _PlatformMessage(msgspec.Struct, frozen=True):
    """Holds a message as people on the platform see it. The `choices` are its buttons, and
    `question` names the question that they answer, if there is one."""

    key: PartId
    place: str
    text: str
    choices: tuple[str, ...] = ()
    question: QuestionId | None = None

    @property
    def receipt(self) -> str:
        return f"shown-{self.key}"


def _shown_by(effect: Post | Edit, key: PartId, *, place: str = "") -> _PlatformMessage:
    """Return the message as a post or an edit shows it."""
    place = place or effect.address.place
    return _PlatformMessage(key, place, effect.text, effect.choices, effect.question)


class ScriptedPlatform:
    """Implements the `Adapter` port in memory. It is the outside world, so it survives every crash
    of the gateway.

    `failures` holds what the next effects meet, oldest first: a `Transient`, `Permanent` or
    `NotFound` is raised before anything is shown, an `Ambiguous` after. `lookups` does the same for
    `find`, and `typing_failures` for `typing`. A `Transient` may name a wait: whatever is asked of
    that place before it is over is recorded in `hasty`.

    `shown` is all that was ever shown, in its last form and in the order in which it appeared.
    `visible` is what people still see, and `edits` every form that a message has had. With
    `finishes_late`, what a process asks for in the instant of its death is done after the next one
    has begun.
    """

    def __init__(
        self,
        *,
        name: str = "scripted",
        capabilities: Capabilities | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.clock = clock
        self.finishes_late = False
        self.late: list[Effect] = []
        self.lookups: list[_PlatformFailure | None] = []
        self.typing_failures: list[_PlatformFailure | None] = []
        self.waits: dict[str, float] = {}  # by place, or empty for the account: until when
        self.hasty: list[str] = []
        self.can = capabilities or Capabilities(takes_key=True, can_find=True, can_delete=True)
        self.unacknowledged: list[PersonAct] = []
        self.sent: list[PersonAct] = []
        self.shown: list[_PlatformMessage] = []
        self.edits: list[_PlatformMessage] = []
        self.files: list[Upload] = []
        self.marks: list[React] = []
        self.typed: list[Address] = []
        self.deleted: list[str] = []  # receipts
        self.failures: list[_PlatformFailure | None] = []
        self.held: dict[str, bytes] = {}  # files, by reference
        self.gone: set[str] = set()  # references that lead nowhere
        self.fetched: list[str] = []

    def say(
        self,
        update: str,
        place: str,
        text: str,
        *,
        files: Sequence[str] = (),
        album: str = "",
        thread: str = "",
    ) -> None:
        """Let a person write a message. Each file is a text that names itself."""
        references = []
        for name in files:
            reference = f"{update}/{name}"
            data = self.held.setdefault(reference, f"the words of {name}".encode())
            references.append(FileReference(reference=reference, name=name, size=len(data)))
        sent = PersonAct(
            id=update,
            place=place,
            text=text,
            files=tuple(references),
            album=album,
            thread=thread,
        )
        self._send(sent)

    def edit(self, update: str, target: str, text: str) -> None:
        """Let a person change one of their messages."""
        place = self._place_of(target)
        self._send(
            PersonAct(id=update, place=place, text=text, kind=UpdateKind.EDIT, target=target)
        )

    def delete_message(self, update: str, target: str) -> None:
        """Let a person delete one of their messages."""
        self._send(
            PersonAct(
                id=update, place=self._place_of(target), kind=UpdateKind.DELETE, target=target
            )
        )

    def press_button(self, update: str, place: str, press: Press, *, by: str) -> None:
        """Let a person press a button under a question."""
        self._send(PersonAct(id=update, place=place, press=press, by=by))

    def _send(self, sent: PersonAct) -> None:
        self.sent.append(sent)
        self.unacknowledged.append(sent)

    def _place_of(self, target: str) -> str:
        return next(sent.place for sent in self.sent if sent.id == target)

    async def acknowledge(self, update: str) -> None:
        """Stop offering a message."""
        self.unacknowledged = [each for each in self.unacknowledged if each.id != update]

    def capabilities(self, address: Address) -> Capabilities:
        return self.can

    def size(self, text: str) -> int:
        return size_of(text, self.can.unit)

    async def perform(self, effect: Effect) -> Receipt:
        """Do what is asked, and raise the next of the `failures` before or after it."""
        place = effect.address.place
        self._insist_on_patience(type(effect).__name__, place)
        failure = self._met(self.failures, place)
        receipt = self._done(effect)
        if failure is not None:
            raise failure
        return Receipt(external_id=receipt)

    def left_hanging(self, asked: object) -> None:
        """Remember what a process had asked for when it died. Nothing of it has happened yet."""
        effect = _effect_of(asked) if isinstance(asked, Preview) else asked
        if self.finishes_late and isinstance(effect, Post | Edit | Delete | Upload | React):
            self.late.append(effect)

    def do_what_hung(self) -> None:
        """Do what dead processes have asked for."""
        for effect in self.late:
            with contextlib.suppress(NotFound, Permanent):
                self._done(effect)
        self.late.clear()

    def _done(self, effect: Effect) -> str:
        """Do what is asked, and return the receipt."""
        match effect:
            case Post():
                self._show(_shown_by(effect, effect.key))
                receipt = f"shown-{effect.key}"
            case Edit():
                self._change(effect)
                receipt = effect.receipt
            case Delete():
                self._delete(effect)
                receipt = "gone"
            case Upload():
                self._show(_PlatformMessage(effect.key, effect.address.place, effect.name))
                self.files.append(effect)
                receipt = f"shown-{effect.key}"
            case React():
                self.marks.append(effect)
                receipt = "marked"
            case _:
                assert_never(effect)
        return receipt

    def _show(self, message: _PlatformMessage) -> None:
        """Show a part, unless its key was shown before and the platform takes keys."""
        is_repeat = any(shown.key == message.key for shown in self.shown)
        if not (self.can.takes_key and is_repeat):
            self.shown.append(message)
            self.edits.append(message)

    def _change(self, edit: Edit) -> None:
        for index, shown in enumerate(self.shown):
            if shown.receipt == edit.receipt and edit.receipt not in self.deleted:
                self.shown[index] = _shown_by(edit, shown.key, place=shown.place)
                self.edits.append(self.shown[index])
                return
        raise NotFound(f"nothing is shown as {edit.receipt}")

    def _delete(self, effect: Delete) -> None:
        place = effect.address.place
        if not any((shown.receipt, shown.place) == (effect.receipt, place) for shown in self.shown):
            raise Permanent(f"nothing in {place} was ever shown as {effect.receipt}")
        self.deleted.append(effect.receipt)

    async def find(self, sought: Sought) -> Receipt | None:
        """Return the receipt of the part if it was ever shown."""
        self._insist_on_patience("find", sought.address.place)
        if (failure := self._met(self.lookups, sought.address.place)) is not None:
            raise failure
        if any(shown.key == sought.key for shown in self.shown):
            return Receipt(external_id=f"shown-{sought.key}")
        return None

    async def preview(self, preview: Preview) -> str:
        """Show a growing answer as a post, and then as edits of it."""
        return (await self.perform(_effect_of(preview))).external_id

    async def fetch(self, reference: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file in small pieces, so that a crash can come between two of
        them."""
        self.fetched.append(reference)
        if reference in self.gone:
            raise Permanent("the platform has deleted it; send it again")
        data = self.held[reference]
        for start in range(0, len(data), 8):
            yield data[start : start + 8]

    async def typing(self, address: Address) -> None:
        """Record that the bot says it is typing."""
        self._insist_on_patience("typing", address.place)
        if (failure := self._met(self.typing_failures, address.place)) is not None:
            raise failure
        self.typed.append(address)

    def _met(self, failures: list[_PlatformFailure | None], place: str) -> _PlatformFailure | None:
        """Take the next failure and begin the wait that it names. Raises it, unless it is an
        `Ambiguous`: that one is returned, to be raised once the effect has happened."""
        failure = failures.pop(0) if failures else None
        wait_s = failure.retry_after_s if isinstance(failure, Transient | Ambiguous) else None
        if failure is not None and wait_s and self.clock is not None:
            held = "" if failure.code == ACCOUNT_WAIT else place
            self.waits[held] = self.clock.monotonic_s() + wait_s
        if isinstance(failure, Transient | Permanent | NotFound):
            raise failure
        return failure

    def _insist_on_patience(self, what: str, place: str) -> None:
        """Refuse a call that comes during a wait, and record it as hasty."""
        if self.clock is None:
            return
        until = max(self.waits.get(place, 0.0), self.waits.get("", 0.0))
        left_s = until - self.clock.monotonic_s()
        if left_s > 0:
            self.hasty.append(f"{what} in {place}, {left_s:g} s too early")
            raise Transient("too many requests", retry_after_s=left_s)

    @property
    def visible(self) -> list[_PlatformMessage]:
        """Return the messages that people still see."""
        return [shown for shown in self.shown if shown.receipt not in self.deleted]

    def message(self, receipt: str) -> _PlatformMessage:
        """Return the message that people see under a receipt."""
        return next(shown for shown in self.visible if shown.receipt == receipt)

    def repeated(self) -> list[PartId]:
        """Return the parts that people have seen more than once."""
        return [key for key, count in Counter(s.key for s in self.shown).items() if count > 1]
