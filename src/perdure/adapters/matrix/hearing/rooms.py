"""Keeps the rooms that the bot is in, built from the state events that the server sends."""

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
    """Holds what is known about one room. `names` has only the members that the server has named,
    which is not everybody in a large room. `heroes` are the members who stand for a room that has
    no name."""

    id: str
    name: str = ""
    alias: str = ""
    names: dict[str, str] = field(default_factory=dict)
    heroes: tuple[str, ...] = ()
    joined: int = 0
    is_encrypted: bool = False
    joined_at_ms: int = 0

    def label(self) -> str:
        """Return what people call the room: its name, its alias, or the names of its members."""
        return self.name or self.alias or ", ".join(self.name_of(hero) for hero in self.heroes)

    def name_of(self, user: str) -> str:
        """Return the display name of a member, or the first part of the id where it is unknown."""
        return self.names.get(user) or localpart(user)

    def fold(self, event: MatrixEvent, *, me: str) -> None:
        """Apply one state event to the room. `me` is the bot's user id."""
        match event.type:
            case "m.room.name":
                content = decoded(event.content, RoomNameContent)
                self.name = (content and content.name) or ""
            case "m.room.canonical_alias":
                alias = decoded(event.content, AliasContent)
                self.alias = (alias and alias.alias) or ""
            case _ if event.type == ENCRYPTION:
                self.is_encrypted = True  # encryption can never be turned off
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
    """Holds the rooms by id. A missing room is one that the bot is not in, or that no sync has
    named yet."""

    def __init__(self) -> None:
        self._rooms: dict[str, Room] = {}
        self._direct: frozenset[str] = frozenset()
        self.me = ""

    def get(self, room: str) -> Room | None:
        return self._rooms.get(room)

    def kind(self, room: Room) -> PlaceKind:
        """Return whether a room is private: it has at most two members, or the bot's account has
        marked it as a direct chat."""
        is_private = 1 <= room.joined <= 2 or room.id in self._direct
        return PlaceKind.PRIVATE if is_private else PlaceKind.GROUP

    def fold(self, room_id: str, update: JoinedRoom) -> Room:
        """Apply what a sync says about one room, and return the room."""
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
        """Read from the account data which rooms are marked as direct chats."""
        for raw in account.events:
            found = decoded(raw, AccountData)
            if found is None or found.type != DIRECT:
                continue
            direct = decoded(found.content, dict[str, tuple[str, ...]]) or {}
            self._direct = frozenset(room for rooms in direct.values() for room in rooms)


def localpart(user: str) -> str:
    """Return the part of a user id between `@` and `:`."""
    return user.removeprefix("@").partition(":")[0]
