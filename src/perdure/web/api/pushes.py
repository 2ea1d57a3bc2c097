"""Serves the browsers that a person wants to be notified on."""

from urllib.parse import urlsplit

from perdure.domain.ids import SubscriptionId
from perdure.domain.text import storable
from perdure.ports.delivery.pushes import PushSubscription, PushTarget
from perdure.ports.people.principals import Principal
from perdure.web.api import push_wire
from perdure.web.endpoints import endpoint
from perdure.web.services import Services


def subscription_out(kept: PushSubscription) -> push_wire.SubscriptionOut:
    """Return a browser as the API shows it. Whoever knows its whole address may send to it, so that
    is not shown."""
    return push_wire.SubscriptionOut(
        id=kept.id, service=urlsplit(kept.target.endpoint).netloc, made_at=kept.made_at
    )


@endpoint("GET", "/api/push", "Read how browsers subscribe to notifications, and which of yours do")
async def push(services: Services, by: Principal) -> push_wire.PushOut:
    """Return the public key that browsers are given, and the caller's browsers."""
    key = await services.pushes.known_key()
    if key is None:
        key = await services.pushes.key(services.push_sender.new_key())
    return push_wire.PushOut(
        key=services.push_sender.public_part(key),
        subscriptions=[subscription_out(each) for each in await services.pushes.of(by.id)],
    )


@endpoint("POST", "/api/push", "Be notified on a browser", status=201)
async def subscribe(
    services: Services, by: Principal, *, body: push_wire.SubscriptionIn
) -> push_wire.SubscriptionOut:
    """Keep a browser. The same one again has the same id."""
    target = PushTarget(
        endpoint=storable(body.endpoint),
        p256dh=storable(body.keys.p256dh),
        auth=storable(body.keys.auth),
    )
    services.push_sender.check(target)
    return subscription_out(await services.pushes.subscribe(by.id, target))


@endpoint("DELETE", "/api/push/{id}", "Be notified on a browser no more")
async def unsubscribe(services: Services, by: Principal, which: str) -> dict[str, str]:
    """Forget one of the caller's browsers."""
    await services.pushes.unsubscribe(by.id, SubscriptionId(storable(which)))
    return {"removed": which}
