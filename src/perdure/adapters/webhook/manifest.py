"""Describes the webhook adapter: its settings and routes, and where its factory is."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from perdure.adapters.webhook.presets import Preset
from perdure.adapters.webhook.signing import is_key, key_of
from perdure.adapters.webhook.template import TEMPLATE, TEMPLATE_WITH_PLACE
from perdure.domain.address import AddressForm
from perdure.domain.secret import Secret
from perdure.ports.platform.manifest import Manifest, Quality
from perdure.ports.platform.settings import (
    AdapterSettings,
    BusyChoice,
    CollectMs,
    Name,
    NonEmptyText,
    Section,
    SettingKey,
    Url,
)

NAME: Final = "webhook"
# The two fixed values of a route's `conversation`: each request has its own, or all share one.
EACH: Final = "each"
ONE: Final = "one"
# The least length of a secret that is not in the form of Standard Webhooks.
SECRET_MIN: Final = 16

_PLACES: Final = "{body}, {json.path.to.field} and {headers.name}"
Secrets = Annotated[
    tuple[Secret, ...],
    Meta(min_length=1, description='a list of at least one secret, such as [{ env = "NAME" }]'),
]
Prompt = Annotated[
    str,
    Meta(
        pattern=TEMPLATE,
        description=f"text whose braces are {_PLACES}; write {{{{ and }}}} for plain ones",
    ),
]
Conversation = Annotated[
    str,
    Meta(
        pattern=rf"^(?:{EACH}|{ONE}|{TEMPLATE_WITH_PLACE})\Z",
        description='"each", "one", or a template such as "{json.issue.id}"',
    ),
]


class Route(Section, frozen=True, kw_only=True):
    """Configures one kind of request, at `/hooks/webhook/NAME`.

    A request may be signed with any of `secrets`. What is sent to `callback` is signed with
    `callback_secret`, or with the first of `secrets`. `preset` says who sends, and so how requests
    are signed. Without `events` every event is taken. Answers also go to the address `deliver_to`.
    """

    secrets: Secrets
    preset: Literal["standard", "github", "gitlab", "linear", "sentry", "grafana", "bearer"] = (
        "standard"
    )
    events: tuple[NonEmptyText, ...] = ()
    agent: Name | None = None
    prompt: Prompt = ""
    conversation: Conversation = EACH
    deliver_to: NonEmptyText | None = None
    callback: Url | None = None
    callback_secret: Secret | None = None


class WebhookSettings(AdapterSettings, frozen=True, kw_only=True):
    """Holds the settings of `[adapters.webhook]`.

    `busy` is `queue`, because a newer event does not make an older one unimportant. Requests are
    not collected: each one is whole.
    """

    routes: Mapping[Name, Route]
    busy: BusyChoice = "queue"
    collect_ms: CollectMs = 0
    stream: bool = False

    def __post_init__(self) -> None:
        """Allow every route as a sender: a valid signature is all the permission that is needed."""
        senders = (sender_of(name) for name in self.routes)
        msgspec.structs.force_setattr(self, "allow", tuple(dict.fromkeys((*self.allow, *senders))))

    def named_agents(self) -> Iterator[tuple[SettingKey, str]]:
        """Yield the agents that the settings name, each with its key."""
        yield from AdapterSettings.named_agents(self)
        for name, route in self.routes.items():
            if route.agent is not None:
                yield ("routes", name, "agent"), route.agent

    def named_places(self) -> Iterator[tuple[SettingKey, str]]:
        """Yield the addresses that answers go to, each with its key."""
        for name, route in self.routes.items():
            if route.deliver_to is not None:
                yield ("routes", name, "deliver_to"), route.deliver_to

    def problems(self) -> Iterator[tuple[SettingKey, str]]:
        """Yield what is wrong with the secrets, each with the key that it is about."""
        for name, route in self.routes.items():
            for index, secret in enumerate(route.secrets):
                yield from _no_secret(secret, route, ("routes", name, "secrets", index))
            if (
                route.callback
                and not route.callback_secret
                and Preset(route.preset) is not Preset.STANDARD
            ):
                yield ("routes", name, "callback_secret"), "is needed to sign what goes to callback"
            if route.callback_secret is not None:
                yield from _no_key(route.callback_secret, ("routes", name, "callback_secret"))


def _no_secret(secret: Secret, route: Route, key: SettingKey) -> Iterator[tuple[SettingKey, str]]:
    """Yield the problem of a secret that cannot prove a request."""
    preset = Preset(route.preset)
    if preset is Preset.STANDARD or (preset is Preset.GITLAB and is_key(secret.reveal())):
        yield from _no_key(secret, key)
    elif len(secret.reveal()) < SECRET_MIN:
        yield key, f"must have at least {SECRET_MIN} characters, so that nobody guesses it"


def _no_key(secret: Secret, key: SettingKey) -> Iterator[tuple[SettingKey, str]]:
    """Yield the problem of a secret that is no valid key."""
    try:
        key_of(secret.reveal())
    except ValueError as error:
        yield key, f'{error}; make one with: echo "whsec_$(openssl rand -base64 32)"'


def sender_of(route: str) -> str:
    """Return the sender's id for a route."""
    return f"{NAME}:{route}"


MANIFEST: Final = Manifest(
    name=NAME,
    title="Webhooks",
    settings=WebhookSettings,
    factory="perdure.adapters.webhook.adapter:make",
    address=AddressForm(pattern=r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}", example="ROUTE"),
    quality=Quality.BRONZE,
)
