"""Shows operators how the agents of a node are doing."""

from collections.abc import Sequence

from perdure.domain.ids import PrincipalId
from perdure.engine.models.places import AgentPlaces
from perdure.engine.models.roster import Backend, Roster
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
        return [self._standing(backend) for backend in self._roster.backends]

    def log(self, name: str) -> str:
        return self._program(self._backend(name)).log()

    async def warm(self, name: str, principal: PrincipalId) -> AgentStanding:
        backend = self._backend(name)
        await self._program(backend).warm_for(principal)
        return self._standing(backend)

    def _standing(self, backend: Backend) -> AgentStanding:
        crowd = self._places.crowd(backend.name)
        return AgentStanding(
            name=backend.name,
            kind=backend.kind,
            model=backend.model,
            is_default=backend.name == self._roster.default,
            calls=crowd.calling,
            waiting=crowd.waiting,
            concurrent=backend.concurrent,
            program=backend.program.view() if backend.program is not None else None,
        )

    def _backend(self, name: str) -> Backend:
        for backend in self._roster.backends:
            if backend.name == name:
                return backend
        raise unknown_agent(name)

    def _program(self, backend: Backend) -> AgentProgramKeeper:
        if backend.program is None:
            raise no_program(backend.name, backend.kind)
        return backend.program
