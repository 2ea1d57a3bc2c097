"""What the gateway knows of Slack before it speaks to it."""

from typing import Final

from perdure.domain.secret import Secret
from perdure.ports.manifest import Manifest, Quality
from perdure.ports.settings import AdapterSettings, Url

NAME: Final = "slack"


class SlackSettings(AdapterSettings, frozen=True, kw_only=True):
    """`token` is the bot's. Events come over a connection of our own where there is an
    `app_token`, and to our hook where there is a `signing_secret`; one of them is needed.
    `native_stream` lets answers in threads grow as Slack's own streams."""

    token: Secret
    app_token: Secret | None = None
    signing_secret: Secret | None = None
    api_url: Url = "https://slack.com/api/"
    native_stream: bool = True


MANIFEST: Final = Manifest(
    name=NAME,
    title="Slack",
    settings=SlackSettings,
    factory="perdure.adapters.slack.adapter:make",
    quality=Quality.SILVER,
    extra="slack",
    needs="slack_sdk",
    unproved=("native streaming", "rate limits", "voice clips", "files of other workspaces"),
)
