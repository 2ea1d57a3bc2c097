"""A scripted chat platform: redelivers until acknowledged, shows what it was sent."""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import assert_never

import msgspec

from perdure.domain.address import Address
from perdure.domain.arrivals import FileReference
from perdure.domain.delivery import Capabilities
from perdure.domain.errors import Ambiguous, NotFound, Permanent, Transient
from perdure.domain.ids import PartId
from perdure.domain.markdown.units import size_of
from perdure.domain.updates import DELETE, EDIT
from perdure.ports.adapter import Delete, Edit, Effect, Post, Preview, React, Receipt, Upload

Failure = Transient | Permanent | Ambiguous | NotFound


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What a person did: wrote a message, or edited or deleted the one named by `target`."""

    id: str
    place: str
    text: str = ""
    kind: str = "message"
    target: str = ""
    files: tuple[FileReference, ...] = ()
    album: str = ""


class Shown(msgspec.Struct, frozen=True):
    """A message as people on the platform see it."""

    key: PartId
    place: str
    text: str

    @property
    def receipt(self) -> str:
        return f"shown-{self.key}"


class ScriptedPlatform:
    """The outside world: it survives every crash of the gateway.

    `failures` holds what the next effects meet, oldest first; a `Transient` or `Permanent` is
    raised before anything is to be seen, an `Ambiguous` after. `shown` is all that was ever shown,
    in its last form; `visible` what people still see; `edits` every form that a message has taken.
    """

    def __init__(self, *, name: str = "scripted", capabilities: Capabilities | None = None) -> None:
        self.name = name
        self.can = capabilities or Capabilities(takes_key=True, can_find=True, can_delete=True)
        self.unacknowledged: list[Sent] = []
        self.sent: list[Sent] = []
        self.shown: list[Shown] = []
        self.edits: list[Shown] = []
        self.files: list[Upload] = []
        self.marks: list[React] = []
        self.typed: list[Address] = []
        self.deleted: list[str] = []  # receipts
        self.failures: list[Failure | None] = []
        self.held: dict[str, bytes] = {}  # files, by reference
        self.gone: set[str] = set()  # references that lead nowhere
        self.fetched: list[str] = []

    def say(
        self, update: str, place: str, text: str, *, files: Sequence[str] = (), album: str = ""
    ) -> None:
        """A person writes something. Each file is a text that names itself."""
        references = []
        for name in files:
            reference = f"{update}/{name}"
            data = self.held.setdefault(reference, f"the words of {name}".encode())
            references.append(FileReference(reference=reference, name=name, size=len(data)))
        sent = Sent(id=update, place=place, text=text, files=tuple(references), album=album)
        self._send(sent)

    def edit(self, update: str, target: str, text: str) -> None:
        """A person changes a message of theirs."""
        place = self._place_of(target)
        self._send(Sent(id=update, place=place, text=text, kind=EDIT, target=target))

    def delete_message(self, update: str, target: str) -> None:
        """A person deletes a message of theirs."""
        self._send(Sent(id=update, place=self._place_of(target), kind=DELETE, target=target))

    def _send(self, sent: Sent) -> None:
        self.sent.append(sent)
        self.unacknowledged.append(sent)

    def _place_of(self, target: str) -> str:
        return next(sent.place for sent in self.sent if sent.id == target)

    async def acknowledge(self, update: str) -> None:
        self.unacknowledged = [each for each in self.unacknowledged if each.id != update]

    def capabilities(self, address: Address) -> Capabilities:
        return self.can

    def size(self, text: str) -> int:
        return size_of(text, self.can.unit)

    async def perform(self, effect: Effect) -> Receipt:
        failure = self._next_failure()
        match effect:
            case Post():
                self._show(effect.key, effect.address, effect.text)
                receipt = f"shown-{effect.key}"
            case Edit():
                self._change(effect.receipt, effect.text)
                receipt = effect.receipt
            case Delete():
                self._delete(effect)
                receipt = "gone"
            case Upload():
                self._show(effect.key, effect.address, effect.name)
                self.files.append(effect)
                receipt = f"shown-{effect.key}"
            case React():
                self.marks.append(effect)
                receipt = "marked"
            case _:
                assert_never(effect)
        if failure is not None:
            raise failure
        return Receipt(external_id=receipt)

    def _show(self, key: PartId, address: Address, text: str) -> None:
        is_repeat = any(shown.key == key for shown in self.shown)
        if not (self.can.takes_key and is_repeat):
            self.shown.append(Shown(key, address.place, text))
            self.edits.append(self.shown[-1])

    def _change(self, receipt: str, text: str) -> None:
        for index, shown in enumerate(self.shown):
            if shown.receipt == receipt and receipt not in self.deleted:
                self.shown[index] = Shown(shown.key, shown.place, text)
                self.edits.append(self.shown[index])
                return
        raise NotFound(f"nothing is shown as {receipt}")

    def _delete(self, effect: Delete) -> None:
        place = effect.address.place
        if not any((shown.receipt, shown.place) == (effect.receipt, place) for shown in self.shown):
            raise Permanent(f"nothing in {place} was ever shown as {effect.receipt}")
        self.deleted.append(effect.receipt)

    async def find(self, key: PartId, address: Address) -> Receipt | None:
        if any(shown.key == key for shown in self.shown):
            return Receipt(external_id=f"shown-{key}")
        return None

    async def preview(self, preview: Preview) -> str:
        if preview.receipt:
            effect: Effect = Edit(
                key=preview.key,
                address=preview.address,
                receipt=preview.receipt,
                text=preview.text,
            )
        else:
            effect = Post(key=preview.key, address=preview.address, text=preview.text)
        return (await self.perform(effect)).external_id

    async def fetch(self, reference: str) -> AsyncGenerator[bytes, None]:
        self.fetched.append(reference)
        if reference in self.gone:
            raise Permanent("the platform has deleted it; send it again")
        data = self.held[reference]
        for start in range(0, len(data), 8):
            yield data[start : start + 8]

    async def typing(self, address: Address) -> None:
        self.typed.append(address)

    def _next_failure(self) -> Failure | None:
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Transient | Permanent | NotFound):
            raise failure
        return failure

    @property
    def visible(self) -> list[Shown]:
        return [shown for shown in self.shown if shown.receipt not in self.deleted]

    def repeated(self) -> list[PartId]:
        """Parts that people have seen more than once."""
        return [key for key, count in Counter(s.key for s in self.shown).items() if count > 1]
