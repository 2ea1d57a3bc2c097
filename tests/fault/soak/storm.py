"""Decides what happens to the gateway during the soak: deaths, stops, pauses, and a model that is
away."""

import random

from tests.fault.soak.model import MoodyModel
from tests.fault.strikes import Strikes

from perdure.testkit.processes.process import GatewayProcess


class Storm(Strikes):
    """Strikes one gateway and its model until its time is over. In the end the gateway runs."""

    def __init__(self, gateway: GatewayProcess, model: MoodyModel, dice: random.Random) -> None:
        super().__init__(gateway, dice)
        self._model = model

    async def rage(self, seconds: float) -> None:
        """Strike with everything, also with deaths of the process."""
        strikes = (
            *(self.kill, self.kill, self.kill, self.kill_while_starting),
            *(self.stop, self.freeze, self._take_the_model_away),
        )
        await self.strike(strikes, seconds)

    async def rumble(self, seconds: float) -> None:
        """Strike without ending the process: a leak only shows in one long life."""
        await self.strike((self.freeze, self._take_the_model_away), seconds)

    async def _take_the_model_away(self) -> None:
        self.struck["model away"] += 1
        await self._model.go_away(self._dice.uniform(0.5, 5.0))
