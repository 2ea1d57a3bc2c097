"""Signs the bot in, with an access token or with a password.

The device must stay the same through restarts: the server recognizes a repeated message by its
device and key, and encrypted rooms trust devices. So the device's name is stored before the
sign-in, and its access token after it.
"""

import msgspec

from perdure.adapters.matrix.login.keeping import Folder, Login
from perdure.adapters.matrix.manifest import MatrixSettings
from perdure.adapters.matrix.wire import CLIENT, FORBIDDEN, SIGNED_OUT, Wire
from perdure.domain.errors import NotFound, Permanent
from perdure.ports.system.entropy import Entropy


class WhoAmI(msgspec.Struct, frozen=True):
    """Holds the server's answer to the question whose access token this is."""

    user_id: str
    device_id: str = ""


class _SignedIn(msgspec.Struct, frozen=True):
    access_token: str


async def sign_in(settings: MatrixSettings, wire: Wire, folder: Folder, entropy: Entropy) -> WhoAmI:
    """Give the wire an access token that the server accepts, and return whose it is. Raises
    `Permanent` with what to correct, where the server does not let the bot in."""
    if settings.token is not None:
        wire.token = settings.token.reveal()
        return _checked(await _who_am_i(wire), settings)
    if settings.password is None:
        raise Permanent("Set token, or password, in [adapters.matrix].")
    login = await _login(settings, folder, entropy)
    wire.token = login.token
    if login.token:
        try:
            return _checked(await _who_am_i(wire), settings)
        except Permanent as error:
            if error.code != SIGNED_OUT:
                raise
    # Store the device before it signs in. If the process dies after the server has accepted the
    # password, the next one signs in as the same device.
    await folder.keep(msgspec.structs.replace(login, token=""))
    token = await _by_password(settings, wire, login.device_id)
    # If the process dies before the token is stored, the next one signs in again, as the same
    # device.
    await folder.keep(msgspec.structs.replace(login, token=token))
    wire.token = token
    return _checked(await _who_am_i(wire), settings)


async def _login(settings: MatrixSettings, folder: Folder, entropy: Entropy) -> Login:
    """Return the stored login, or a new one with a new device if the stored one is for another
    account."""
    kept = await folder.login()
    is_same = kept is not None and (kept.homeserver, kept.user) == (
        settings.homeserver,
        settings.user,
    )
    if kept is not None and is_same and settings.device_id in {None, kept.device_id}:
        return kept
    device = settings.device_id or f"PERDURE{entropy.random_bytes(5).hex().upper()}"
    return Login(homeserver=settings.homeserver, user=settings.user, device_id=device)


async def _by_password(settings: MatrixSettings, wire: Wire, device: str) -> str:
    """Sign in with the password, and return the access token."""
    assert settings.password is not None
    wire.token = ""
    body = {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": settings.user},
        "password": settings.password.reveal(),
        "device_id": device,
        "initial_device_display_name": "Perdure",
    }
    try:
        signed_in = await wire.call("POST", f"{CLIENT}/login", body=body, answer=_SignedIn)
    except NotFound as error:
        raise _no_homeserver(settings.homeserver, error) from error
    except Permanent as error:
        if error.code != FORBIDDEN:
            raise
        raise Permanent(
            f"The homeserver does not let {settings.user} in. Correct user and password in "
            "[adapters.matrix].",
            code=SIGNED_OUT,
        ) from error
    return signed_in.access_token


async def _who_am_i(wire: Wire) -> WhoAmI:
    try:
        return await wire.call("GET", f"{CLIENT}/account/whoami", answer=WhoAmI)
    except NotFound as error:
        raise _no_homeserver("The address", error) from error


def _no_homeserver(what: str, error: NotFound) -> Permanent:
    return Permanent(
        f"{what} answers, but is no Matrix homeserver ({error.message}). Set homeserver in "
        "[adapters.matrix] to the base_url that https://YOUR-SERVER/.well-known/matrix/client "
        "names."
    )


def _checked(found: WhoAmI, settings: MatrixSettings) -> WhoAmI:
    """Refuse the access token of another user. Its account id would differ, so the same people
    would get new conversations."""
    if settings.user == found.user_id:
        return found
    raise Permanent(
        f"The access token belongs to {found.user_id}, but user is {settings.user}. Correct one of "
        "them in [adapters.matrix]."
    )
