"""Declares the name, the settings and the addresses of Telegram, without importing the adapter."""

from typing import Final, Literal

from perdure.domain.address import AddressForm
from perdure.domain.secret import Secret
from perdure.ports.platform.manifest import Manifest, Quality
from perdure.ports.platform.settings import AdapterSettings, Url

NAME: Final = "telegram"


class TelegramSettings(AdapterSettings, frozen=True, kw_only=True):
    """Holds the settings of `[adapters.telegram]`.

    `mode` is how updates arrive: we poll for them, or Telegram sends them to our hook.
    `webhook_secret` proves that a request comes from Telegram; if left out, it is derived from the
    token. `rich` sends answers with tables and headings as rich messages, where the server knows
    them.
    """

    token: Secret
    api_url: Url = "https://api.telegram.org"
    mode: Literal["polling", "webhook"] = "polling"
    webhook_secret: Secret | None = None
    rich: bool = True


MANIFEST: Final = Manifest(
    name=NAME,
    title="Telegram",
    settings=TelegramSettings,
    factory="perdure.adapters.telegram.adapter:make",
    address=AddressForm(
        # Telegram also accepts the @name of a public channel or group. But messages from there
        # arrive with its number, so the @name would be a second conversation here. Ids have up to
        # 52 bits.
        pattern=r"-?[1-9][0-9]{0,15}",
        thread=r"[1-9][0-9]{0,9}",
        person=r"-?[1-9][0-9]{0,15}",
        example="123456789",
    ),
    quality=Quality.SILVER,
    unproved=("drafts", "rich messages", "reactions", "documents", "topics", "flood control"),
)
