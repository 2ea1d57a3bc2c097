"""Discord, as the gateway knows it before anything of it is imported."""

from typing import Final

from perdure.domain.address import AddressForm
from perdure.domain.secret import Secret
from perdure.ports.platform.manifest import Manifest, Quality
from perdure.ports.platform.settings import AdapterSettings, NonEmptyText, Url

NAME: Final = "discord"
_SNOWFLAKE: Final = r"[1-9][0-9]{16,19}"


class DiscordSettings(AdapterSettings, frozen=True, kw_only=True):
    """`api_url`, `gateway_url` and `cdn_url` are for servers other than Discord's own: where REST
    is, without its version, the websocket, and the pictures of stickers. `slash_commands` puts our
    commands on Discord's menu."""

    token: Secret
    api_url: Url = "https://discord.com/api"
    gateway_url: NonEmptyText | None = None
    cdn_url: Url = "https://media.discordapp.net"
    slash_commands: bool = True


MANIFEST: Final = Manifest(
    name=NAME,
    title="Discord",
    settings=DiscordSettings,
    factory="perdure.adapters.discord.adapter:make",
    address=AddressForm(
        pattern=_SNOWFLAKE, thread=_SNOWFLAKE, person=_SNOWFLAKE, example="1032143452345678901"
    ),
    quality=Quality.SILVER,
    extra="discord",
    needs="discord",
    unproved=("idempotent sending by nonce", "resuming a session", "rate limits"),
)
