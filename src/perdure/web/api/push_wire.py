"""Declares the bodies about notifications. Their docstrings appear in the OpenAPI document."""

import msgspec


class SubscriptionKeysIn(msgspec.Struct, forbid_unknown_fields=True):
    """Holds the public key and the secret of a browser, in base64url."""

    p256dh: str
    auth: str


class SubscriptionIn(msgspec.Struct, forbid_unknown_fields=True):
    """Holds what `PushSubscription.toJSON()` returns in a browser. Its `expirationTime` is not
    used."""

    endpoint: str
    keys: SubscriptionKeysIn
    expirationTime: float | None = None  # noqa: N815 - browsers call it so


class SubscriptionOut(msgspec.Struct):
    """Shows a browser by the host of its push service, and when it has subscribed."""

    id: str
    service: str
    made_at: int


class PushOut(msgspec.Struct):
    """Holds the key that a browser must be given to subscribe (`applicationServerKey`), and the
    browsers that have."""

    key: str
    subscriptions: list[SubscriptionOut]
