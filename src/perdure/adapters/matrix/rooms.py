"""The rooms that the bot is in, folded from what the server tells of them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from perdure.adapters.matrix.events import (
    ENCRYPTION,
    MEMBER,
    AccountData,
    AliasContent,
    EventList,
    JoinedRoom,
    MatrixEvent,
    MemberContent,
    RoomNameContent,
    all_of,
    decoded,
)
from perdure.domain.inbound.arrivals import PlaceKind

DIRECT: Final = "m.direct"


@dataclass(slots=True)
class Room:
    """`names` are those of members that the server has told of: not all of a large room's."""

    id: str
    name: str = ""
    alias: str = ""
    names: dict[str, str] = field(default_factory=dict)
    heroes: tuple[str, ...] = ()
    joined: int = 0
    is_encrypted: bool = False
    joined_at_ms: int = 0

    def label(self) -> str:
        """What people call it: its name, else who is there."""
        return self.name or self.alias or ", ".join(self.name_of(hero) for hero in self.heroes)

    def name_of(self, user: str) -> str:
        return self.names.get(user) or localpart(user)

    def fold(self, event: MatrixEvent, *, me: str) -> None:
        match event.type:
            case "m.room.name":
                content = decoded(event.content, RoomNameContent)
                self.name = (content and content.name) or ""
            case "m.room.canonical_alias":
                alias = decoded(event.content, AliasContent)
                self.alias = (alias and alias.alias) or ""
            case _ if event.type == ENCRYPTION:
                self.is_encrypted = True  # there is no way back
            case _ if event.type == MEMBER:
                self._fold_member(event, me)
            case _:
                pass

    def _fold_member(self, event: MatrixEvent, me: str) -> None:
        member = decoded(event.content, MemberContent)
        if member is None or event.state_key is None:
            return
        if member.membership in {"join", "invite"}:
            self.names[event.state_key] = member.displayname or ""
        else:
            self.names.pop(event.state_key, None)
        if event.state_key == me and member.membership == "join":
            self.joined_at_ms = event.origin_server_ts


class Rooms:
    """By id. A room that is missing is one we are not in, or have not heard of yet."""

    def __init__(self) -> None:
        self._rooms: dict[str, Room] = {}
        self._direct: frozenset[str] = frozenset()
        self.me = ""

    def get(self, room: str) -> Room | None:
        return self._rooms.get(room)

    def kind(self, room: Room) -> PlaceKind:
        """Two people, or marked as a direct chat by whoever runs the bot's account."""
        is_private = 1 <= room.joined <= 2 or room.id in self._direct
        return PlaceKind.PRIVATE if is_private else PlaceKind.GROUP

    def fold(self, room_id: str, update: JoinedRoom) -> Room:
        room = self._rooms.setdefault(room_id, Room(room_id))
        for event in (*all_of(update.state.events), *all_of(update.timeline.events)):
            if event.state_key is not None:
                room.fold(event, me=self.me)
        if update.summary.joined is not None:
            room.joined = update.summary.joined
        if update.summary.heroes is not None:
            room.heroes = update.summary.heroes
        return room

    def forget(self, rooms: Iterable[str]) -> None:
        for room in rooms:
            self._rooms.pop(room, None)

    def fold_account(self, account: EventList) -> None:
        for raw in account.events:
            found = decoded(raw, AccountData)
            if found is None or found.type != DIRECT:
                continue
            direct = decoded(found.content, dict[str, tuple[str, ...]]) or {}
            self._direct = frozenset(room for rooms in direct.values() for room in rooms)


def localpart(user: str) -> str:
    return user.removeprefix("@").partition(":")[0]
