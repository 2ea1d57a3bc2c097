"""A scripted chat platform: redelivers until acknowledged, shows what it was sent."""

from collections import Counter

import msgspec

from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities
from perdure.domain.errors import Ambiguous, Permanent, Transient
from perdure.domain.ids import PartId
from perdure.domain.updates import DELETE, EDIT
from perdure.ports.adapter import Post, Receipt


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What a person did: wrote a message, or edited or deleted the one named by `target`."""

    id: str
    place: str
    text: str = ""
    kind: str = "message"
    target: str = ""


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
    `visible` what people still see.
    """

    def __init__(self, *, name: str = "scripted", capabilities: Capabilities | None = None) -> None:
        self.name = name
        self.capabilities = capabilities or Capabilities(
            takes_key=True, can_find=True, can_delete=True
        )
        self.unacknowledged: list[Sent] = []
        self.sent: list[Sent] = []
        self.shown: list[Shown] = []
        self.deleted: list[str] = []  # receipts
        self.failures: list[Transient | Permanent | Ambiguous] = []

    def say(self, update: str, place: str, text: str) -> None:
        """A person writes something."""
        self._send(Sent(id=update, place=place, text=text))

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

    async def perform(self, post: Post) -> Receipt:
        failure = self._next_failure()
        is_repeat = any(shown.key == post.key for shown in self.shown)
        if not (self.capabilities.takes_key and is_repeat):
            self.shown.append(Shown(post.key, post.address.place, post.text))
        if failure is not None:
            raise failure
        return Receipt(external_id=f"shown-{post.key}")

    async def find(self, key: PartId) -> Receipt | None:
        if any(shown.key == key for shown in self.shown):
            return Receipt(external_id=f"shown-{key}")
        return None

    async def delete(self, receipt: str, address: Address) -> None:
        failure = self._next_failure()
        if not any(
            (shown.receipt, shown.place) == (receipt, address.place) for shown in self.shown
        ):
            raise Permanent(f"nothing in {address.place} was ever shown as {receipt}")
        self.deleted.append(receipt)
        if failure is not None:
            raise failure

    def _next_failure(self) -> Ambiguous | None:
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Transient | Permanent):
            raise failure
        return failure

    @property
    def visible(self) -> list[Shown]:
        return [shown for shown in self.shown if shown.receipt not in self.deleted]

    def repeated(self) -> list[PartId]:
        """Parts that people have seen more than once."""
        return [key for key, count in Counter(s.key for s in self.shown).items() if count > 1]
