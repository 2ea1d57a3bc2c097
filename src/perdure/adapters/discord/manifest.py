"""Describes the Discord adapter: its settings, its address form, and where its factory is.

The gateway reads this file at start-up, so it imports nothing of Discord's library.
"""

from typing import Final

from perdure.domain.address import AddressForm
from perdure.domain.secret import Secret
from perdure.ports.platform.manifest import Manifest, Quality
from perdure.ports.platform.settings import AdapterSettings, NonEmptyText, Url

NAME: Final = "discord"
# A snowflake is the decimal id that Discord gives to users, channels and messages.
_SNOWFLAKE: Final = r"[1-9][0-9]{16,19}"


class DiscordSettings(AdapterSettings, frozen=True, kw_only=True):
    """Holds the settings of `[adapters.discord]`.

    `api_url` (REST, without the version), `gateway_url` (websocket) and `cdn_url` (sticker images)
    are changed only to reach a server other than Discord's own. `slash_commands` tells whether our
    commands are registered in Discord's command menu.
    """

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
