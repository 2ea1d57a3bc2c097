"""Describes the Slack adapter: its settings, its address form, and where its factory is.

The gateway reads this file at start-up, so it imports nothing of Slack's library.
"""

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
    """Holds the settings of `[adapters.slack]`.

    `token` is the bot's token. With an `app_token`, events come over a websocket that we open
    (Socket Mode); with a `signing_secret`, Slack posts them to our hook (Events API). One of the
    two is needed. `native_stream` shows growing answers in threads as Slack's own streams.
    """

    token: Secret
    app_token: Secret | None = None
    signing_secret: Secret | None = None
    api_url: Url = "https://slack.com/api/"
    native_stream: bool = True

    def problems(self) -> Iterator[tuple[SettingKey, str]]:
        """Yield what is wrong with the settings, each with the key that it is about."""
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
        # Slack would also accept a person's id (U…) here. But that person's answers come from the
        # direct conversation (D…), so they would belong to another conversation of ours.
        pattern=r"[CDG][A-Z0-9]{1,20}",
        thread=r"[0-9]{1,12}\.[0-9]{6}",
        person=r"[UWB][A-Z0-9]{1,20}",
        example="C0123456789",
    ),
    quality=Quality.SILVER,
    extra="slack",
    needs="slack_sdk",
    unproved=(
        "native streaming",
        "rate limits",
        "voice clips",
        "files of other workspaces",
        "answers below a message of the bot",
    ),
)
