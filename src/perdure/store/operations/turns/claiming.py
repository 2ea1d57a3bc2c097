"""Builds what a runner needs to begin a turn, both for a turn claimed from the line and for one
that begins in the transaction that accepts its message."""

from typing import NamedTuple

from perdure.domain.address import Address, is_shared
from perdure.domain.ids import ConversationId, PrincipalId, TurnId
from perdure.domain.journal.events import Recorded
from perdure.domain.kinds import TurnKind
from perdure.domain.people.access import Speaker
from perdure.domain.prompt.whereabouts import Whereabouts
from perdure.domain.turn.recovery import telling_own
from perdure.ports.turns.turns import Claimed, TurnLease
from perdure.store.operations.people.memories import MemoryOwner, recall
from perdure.store.operations.turns.interruption_notes import looking_back
from perdure.store.statement import Op


class Begun(NamedTuple):
    """Holds a turn that has just begun. `events` are the turn's own; `told_seq` is the seq of the
    newest interruption of it that the model was told of."""

    lease: TurnLease
    conversation: ConversationId
    principal: PrincipalId
    address: Address
    place_kind: str
    whereabouts: Whereabouts
    parent: TurnId | None
    kind: TurnKind
    view: str
    title: str
    is_listed: bool
    events: tuple[Recorded, ...]
    told_seq: int = 0
    speaker: Speaker | None = None


def claimed(begun: Begun) -> Op[Claimed]:
    """Return a begun turn together with the notes that the model needs and the memories about its
    person."""
    before = yield from looking_back(begun.parent, kind=begun.kind)
    shared = is_shared(begun.address, begun.place_kind)
    person = MemoryOwner(begun.principal, begun.conversation, is_shared=shared)
    return Claimed(
        lease=begun.lease,
        conversation=begun.conversation,
        principal=begun.principal,
        address=begun.address,
        is_shared=shared,
        parent=begun.parent,
        events=begun.events,
        telling=telling_own(begun.events, before.telling, told_seq=begun.told_seq),
        view=begun.view,
        prefix=before.prefix,
        memories=tuple((yield from recall(person))),
        has_title=bool(begun.title),
        is_listed=begun.is_listed,
        whereabouts=begun.whereabouts,
        speaker=begun.speaker,
    )
