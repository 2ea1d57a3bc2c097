"""A scripted chat platform: redelivers until acknowledged, shows what it was sent."""

from collections import Counter

import msgspec

from perdure.domain.delivery import Capabilities
from perdure.domain.errors import Ambiguous, Permanent, Transient
from perdure.domain.ids import PartId
from perdure.ports.adapter import Post, Receipt


class Shown(msgspec.Struct, frozen=True):
    """A message as people on the platform see it."""

    key: PartId
    place: str
    text: str


class ScriptedPlatform:
    """The outside world: it survives every crash of the gateway.

    `failures` holds what the next sends meet, oldest first; a `Transient` or `Permanent` is raised
    before the message is shown, an `Ambiguous` after.
    """

    def __init__(self, *, name: str = "scripted", capabilities: Capabilities | None = None) -> None:
        self.name = name
        self.capabilities = capabilities or Capabilities(takes_key=True, can_find=True)
        self.unacknowledged: list[tuple[str, str, str]] = []  # id, place, text
        self.sent: list[tuple[str, str, str]] = []
        self.shown: list[Shown] = []
        self.failures: list[Transient | Permanent | Ambiguous] = []

    def say(self, update: str, place: str, text: str) -> None:
        """A person writes something."""
        self.sent.append((update, place, text))
        self.unacknowledged.append((update, place, text))

    async def acknowledge(self, update: str) -> None:
        self.unacknowledged = [each for each in self.unacknowledged if each[0] != update]

    async def perform(self, post: Post) -> Receipt:
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Transient | Permanent):
            raise failure
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

    def repeated(self) -> list[PartId]:
        """Parts that people see more than once."""
        return [key for key, count in Counter(s.key for s in self.shown).items() if count > 1]
