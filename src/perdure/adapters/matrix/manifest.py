"""Declares the name, the settings and the addresses of Matrix, without importing the adapter."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from msgspec import Meta

from perdure.domain.address import AddressForm
from perdure.domain.secret import Secret
from perdure.ports.platform.manifest import Manifest, Quality
from perdure.ports.platform.settings import AdapterSettings, NonEmptyText, SettingKey, Url

NAME: Final = "matrix"
# The extra to install for `encryption = true`. Without encryption, Matrix needs no library of its
# own.
ENCRYPTION_EXTRA: Final = "matrix-e2e"
_SERVER: Final = r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"

UserId = Annotated[
    str,
    Meta(pattern=r"^@[^\s:]+:\S+\Z", description='the bot\'s whole id such as "@bot:example.org"'),
]


class MatrixSettings(AdapterSettings, frozen=True, kw_only=True):
    """Holds the settings of `[adapters.matrix]`.

    `user` is the bot's full id (`@bot:example.org`). The bot signs in with `token` or with
    `password`. After a sign-in by password the access token is kept in the adapter's folder, so
    that the device stays the same. `invites` says whether the bot joins a room when a person who
    may speak invites it ("allowed"), or never.
    """

    homeserver: Url
    user: UserId
    password: Secret | None = None
    device_id: NonEmptyText | None = None
    encryption: bool = False
    invites: Literal["allowed", "never"] = "allowed"

    def problems(self) -> Iterator[tuple[SettingKey, str]]:
        if self.token is None and self.password is None:
            yield (), "needs token or password: the bot signs in with one of them"


MANIFEST: Final = Manifest(
    name=NAME,
    title="Matrix",
    settings=MatrixSettings,
    factory="perdure.adapters.matrix.adapter:make",
    address=AddressForm(
        # Ids of newer rooms and events contain no server name, so that part is optional.
        pattern=rf"![^\s:]+(?::{_SERVER})?",
        thread=rf"\$[^\s:]+(?::{_SERVER})?",
        person=rf"@[^\s:]*:{_SERVER}",
        example="!room:example.org",
    ),
    quality=Quality.GOLD,
    unproved=("federation", "single sign-on"),
)
