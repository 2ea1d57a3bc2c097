"""Starts to receive what people do on the platforms, once a node can take it."""

from functools import partial

from perdure.app.wiring.assembly import NodeParts
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.engine.inbound.inlet import AccountInlet, Care
from perdure.engine.inbound.receivers import PlatformReceiver


def begin_receiving(dependencies: NodeDependencies, parts: NodeParts) -> None:
    """Start to receive what people do on the platforms."""
    is_after_death = parts.gateway.is_after_death
    care = Care(dependencies.store.handling, dependencies.clock, is_after_death=is_after_death)

    def inlet(receiver: PlatformReceiver) -> AccountInlet:
        return AccountInlet(
            receiver.name,
            terms=partial(dependencies.terms, receiver.name),
            door=parts.door,
            access=dependencies.store.access,
            overhearing=dependencies.store.overhearing,
            places=dependencies.store.places,
            accounts=lambda: {view.name: view.account for view in parts.receivers.views()},
            principals=dependencies.store.principals,
            entropy=dependencies.entropy,
            gate=parts.gate,
            heard=receiver.heard,
            typing=parts.receivers.show_typing,
            wakes=parts.wakes,
            care=care,
        )

    parts.receivers.begin(inlet)
