"""What the gateway knows of Telegram before it speaks to it."""

from typing import Final, Literal

from perdure.domain.address import AddressForm
from perdure.domain.secret import Secret
from perdure.ports.platform.manifest import Manifest, Quality
from perdure.ports.platform.settings import AdapterSettings, Url

NAME: Final = "telegram"


class TelegramSettings(AdapterSettings, frozen=True, kw_only=True):
    """`mode` is how updates come: asked for, or sent to our hook. `webhook_secret` proves that
    Telegram is the one that sends; left out, it is derived from the token. `rich` lets answers with
    tables and headings go out as rich messages where the server knows them."""

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
        # Telegram takes the @name of a public channel or group too, but what people write there
        # comes with its number: it would be another conversation here. Ids have up to 52 bits.
        pattern=r"-?[1-9][0-9]{0,15}",
        thread=r"[1-9][0-9]{0,9}",
        person=r"-?[1-9][0-9]{0,15}",
        example="123456789",
    ),
    quality=Quality.SILVER,
    unproved=("drafts", "rich messages", "reactions", "documents", "topics", "flood control"),
)
