"""What the gateway knows of Slack before it speaks to it."""

from collections.abc import Iterator
from typing import Final

from perdure.domain.address import AddressForm
from perdure.domain.secret import Secret
from perdure.ports.platform.manifest import Manifest, Quality
from perdure.ports.platform.settings import AdapterSettings, SettingKey, Url

NAME: Final = "slack"
_WAYS: Final = "app_token (xapp-…) for Socket Mode, or signing_secret for the Events API"
_TOKENS: Final = "token is the bot's (xoxb-…), app_token the app's (xapp-…)"


class SlackSettings(AdapterSettings, frozen=True, kw_only=True):
    """`token` is the bot's. Events come over a connection of our own where there is an
    `app_token`, and to our hook where there is a `signing_secret`; one of them is needed.
    `native_stream` lets answers in threads grow as Slack's own streams."""

    token: Secret
    app_token: Secret | None = None
    signing_secret: Secret | None = None
    api_url: Url = "https://slack.com/api/"
    native_stream: bool = True

    def problems(self) -> Iterator[tuple[SettingKey, str]]:
        if self.app_token is None and self.signing_secret is None:
            yield (), f"needs a way to get events: {_WAYS}"
        for key, secret, wrong in (
            ("token", self.token, "xapp-"),
            ("app_token", self.app_token, "xoxb-"),
        ):
            if secret is not None and secret.reveal().startswith(wrong):
                yield (key,), f"must not begin with {wrong}; {_TOKENS}"


MANIFEST: Final = Manifest(
    name=NAME,
    title="Slack",
    settings=SlackSettings,
    factory="perdure.adapters.slack.adapter:make",
    address=AddressForm(
        # Slack takes a person's id (U…) too, but what that person answers comes from the direct
        # conversation (D…): it would be another one here.
        pattern=r"[CDG][A-Z0-9]{1,20}",
        thread=r"[0-9]{1,12}\.[0-9]{6}",
        person=r"[UWB][A-Z0-9]{1,20}",
        example="C0123456789",
    ),
    quality=Quality.SILVER,
    extra="slack",
    needs="slack_sdk",
    unproved=("native streaming", "rate limits", "voice clips", "files of other workspaces"),
)
