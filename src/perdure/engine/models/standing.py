"""Shows operators how the agents of a node are doing."""

from collections.abc import Sequence

from perdure.domain.ids import PrincipalId
from perdure.engine.models.places import AgentPlaces
from perdure.engine.models.roster import Roster, Seat
from perdure.ports.agents.programs import (
    AgentProgramKeeper,
    AgentStanding,
    no_program,
    unknown_agent,
)


class NodeAgents:
    """Implements the `AgentStandings` port."""

    def __init__(self, roster: Roster, places: AgentPlaces) -> None:
        self._roster = roster
        self._places = places

    def standings(self) -> Sequence[AgentStanding]:
        return [self._standing(seat) for seat in self._roster.seats]

    def log(self, name: str) -> str:
        return self._program(self._seat(name)).log()

    async def warm(self, name: str, principal: PrincipalId) -> AgentStanding:
        seat = self._seat(name)
        await self._program(seat).warm_for(principal)
        return self._standing(seat)

    def _standing(self, seat: Seat) -> AgentStanding:
        crowd = self._places.crowd(seat.name)
        return AgentStanding(
            name=seat.name,
            kind=seat.kind,
            model=seat.model,
            is_default=seat.name == self._roster.default,
            calls=crowd.calling,
            waiting=crowd.waiting,
            concurrent=seat.concurrent,
            program=seat.program.view() if seat.program is not None else None,
        )

    def _seat(self, name: str) -> Seat:
        for seat in self._roster.seats:
            if seat.name == name:
                return seat
        raise unknown_agent(name)

    def _program(self, seat: Seat) -> AgentProgramKeeper:
        if seat.program is None:
            raise no_program(seat.name, seat.kind)
        return seat.program
