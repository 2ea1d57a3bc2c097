"""Defines the ports of notifications that people's browsers show while nobody looks at the page."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from perdure.domain.ids import ConversationId, PrincipalId, SubscriptionId

# The code of an error for a browser that wants no notifications any more.
GONE: Final = "subscription_gone"


class PushKind(StrEnum):
    """Says what a notification is about: an answer, a turn without one, or what an agent asks."""

    ANSWER = "answer"
    FAILURE = "failure"
    APPROVAL = "approval"
    QUESTION = "question"


class PushTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a browser says of itself: the address at its push service, which whoever knows it
    may send to, its public key, and a secret. The last two are in base64url."""

    endpoint: str
    p256dh: str
    auth: str


class PushSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a browser that a person wants to be notified on. `failures` is how often in a row its
    push service could not be asked."""

    id: SubscriptionId
    principal: PrincipalId
    target: PushTarget
    made_at: int
    failures: int = 0


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one notification that is due. `conversation` is how its person calls it, and `at` when
    it happened."""

    subscription: PushSubscription
    conversation_id: ConversationId
    conversation: str
    title: str
    kind: PushKind
    subject: str
    at: int


class DuePushes(msgspec.Struct, frozen=True, kw_only=True):
    """Holds notifications that were taken. `next_ms` is when the next one is due; None if there is
    none."""

    taken: Sequence[Push]
    next_ms: int | None


class Pushes(Protocol):
    """Keeps the browsers that people want to be notified on, and what they must be told.

    Guarantees: a settled turn and an asked question have a row for each browser of the person in
    whose list their conversation is, in the transaction that settles or asks. Two nodes never take
    the same row at the same time. What somebody has seen by then is never taken.
    Requires: the caller has checked the target.
    Raises: `Transient` when nothing was written; `Ambiguous` when that is unknown.
    After a crash: what a dead node has taken and not ended is taken again.
    """

    async def key(self, candidate: str) -> str:
        """Return the key that notifications are signed with. It is `candidate` if there was
        none."""

    async def known_key(self) -> str | None:
        """Return the key that notifications are signed with, or None if none was made yet."""

    async def subscribe(self, principal: PrincipalId, target: PushTarget) -> PushSubscription:
        """Keep a browser. One that is known keeps its id, and belongs to this person from now on.
        If the person has too many then, the oldest is forgotten."""

    async def unsubscribe(self, principal: PrincipalId, which: SubscriptionId) -> None:
        """Forget a browser of this person. Raises `NotFound`."""

    async def of(self, principal: PrincipalId) -> Sequence[PushSubscription]:
        """Return the browsers of a person, the oldest first."""

    async def take(self, *, limit: int, but: Collection[PrincipalId]) -> DuePushes:
        """Take notifications that are due: at most one of each person, and none of those in
        `but`, whose last one is still under way."""

    async def arrived(self, push: Push) -> None:
        """Delete a notification that was taken, because it has arrived or can never do so. To do it
        twice changes nothing."""

    async def rest(self, push: Push, *, until_ms: int) -> None:
        """Leave the push service of a notification alone until then, and keep what is to be
        told."""

    async def gone(self, which: SubscriptionId) -> None:
        """Forget a browser that wants no notifications any more."""


class PushSender(Protocol):
    """Encrypts notifications for browsers, and hands them to push services.

    Guarantees: only the browser can read a notification. No private network is reached, whatever
    the endpoint says. Each call ends within a time limit.
    Requires: a key that `new_key` has made.
    Raises: see the methods. What is raised names the push service's host, and never the endpoint.
    After a crash: nothing is kept.
    """

    def new_key(self) -> str:
        """Make a key that notifications are signed with."""

    def public_part(self, key: str) -> str:
        """Return what browsers are told of a key."""

    def check(self, target: PushTarget) -> None:
        """Raise `Rejected` for a target that nothing can ever be sent to."""

    async def send(self, push: Push, key: str) -> None:
        """Hand a notification to its push service. Raises `Permanent` if it will never be taken,
        with the code `GONE` if nothing else will be either; `Transient` or `Ambiguous` if it may be
        taken later."""


class NoPushSender:
    """Implements `PushSender` for a node from which nothing is sent."""

    def new_key(self) -> str:
        """Return a key for nothing."""
        return "none"

    def public_part(self, key: str) -> str:
        """Return the key itself."""
        return key

    def check(self, target: PushTarget) -> None:
        """Take every target."""

    async def send(self, push: Push, key: str) -> None:
        """Do nothing."""
