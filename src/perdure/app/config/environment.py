"""Reads the process environment, and prepares the home folder and the operator's token.

Only this module reads the process environment; all others are given the mapping. The home contains
conversations and secrets, so only one user may open it. The token is written as a whole or not at
all.
"""

import base64
import contextlib
import os
import pwd
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from perdure.app.config.toml_errors import ConfigError, Problem
from perdure.domain.errors import NO_SPACE, PerdureError, Transient

HOME_VARIABLE: Final = "PERDURE_HOME"
TOKEN_VARIABLE: Final = "PERDURE_TOKEN"  # noqa: S105 - a variable's name
TOKEN_FILE: Final = "token"  # noqa: S105 - a file's name
# A shorter token could be guessed, and so could one of few different characters.
TOKEN_MIN: Final = 8
TOKEN_SIGNS_MIN: Final = 4
FOLDERS: Final = ("media", "logs")
SERVER_FILE: Final = "server.json"
DATABASE: Final = "perdure.db"
LOG_FILE: Final = "perdure.log"
# The last line of a process in the log. The command line reads from it how a stop went.
STOPPED: Final = "stopped"
GAVE_UP: Final = "the stop did not end in time; what is in flight is left as after a kill"
OPERATOR: Final = "operator"

_ELSEWHERE: Final = f"choose another with --home or {HOME_VARIABLE}"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def process_environ() -> Mapping[str, str]:
    """Return a copy of the process environment."""
    return dict(os.environ)


def home_folder(option: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the home folder: `--home`, else PERDURE_HOME, else `~/.perdure`. It is absolute,
    because agents change the working directory."""
    named = option if option is not None else Path(environ.get(HOME_VARIABLE, ""))
    home = _in_user_home(named if named != Path() else Path("~/.perdure"), environ).absolute()
    try:
        str(home).encode()
    except UnicodeEncodeError as error:
        why = f"the home folder's name is not valid Unicode; choose another with {HOME_VARIABLE}"
        raise ConfigError([Problem(ascii(str(home)), 0, why)]) from error
    return home


def prepare_home(home: Path) -> None:
    """Make the home and its folders, open to this user alone. Raises `ConfigError`, or `Transient`
    if the disk is full."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _close_to_others(home)
        for name in FOLDERS:
            (home / name).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(home, error) from error
    if not os.access(home, os.W_OK | os.X_OK):
        why = "this folder cannot be written to"
        advice = f"give the user that runs Perdure the right to, or {_ELSEWHERE}"
        raise ConfigError([Problem(str(home), 0, f"{why}; {advice}")])


def check_home(home: Path) -> None:
    """Check the home for callers that do not create it. It may be missing, but nothing else may be
    in its place. Raises `ConfigError`."""
    try:
        os.scandir(home).close()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unusable(home, error) from error


def _unusable(home: Path, error: OSError) -> PerdureError:
    if error.errno in NO_SPACE:
        return disk_full(home)
    below = [home / name for name in FOLDERS if error.filename == str(home / name)]
    if below:
        why = f"this folder of the home cannot be made ({error.strerror})"
        advice = f"move away what stands there, check who owns the home, or {_ELSEWHERE}"
        return ConfigError([Problem(str(below[0]), 0, f"{why}; {advice}")])
    why = f"cannot be used as the home folder ({error.strerror})"
    return ConfigError([Problem(str(home), 0, f"{why}; {_ELSEWHERE}")])


def disk_full(path: Path) -> Transient:
    """Return the error for a full disk."""
    return Transient(
        f"{path}: the disk is full; free some space, then start again", code="disk_full"
    )


def home_token(
    home: Path, environ: Mapping[str, str], entropy_bytes: Callable[[int], bytes]
) -> str:
    """Return the operator's token: PERDURE_TOKEN, else the home's token file, which is made if
    missing."""
    given = environ.get(TOKEN_VARIABLE, "").strip()
    if given:
        return _usable(given, f"the variable {TOKEN_VARIABLE}")
    path = home / TOKEN_FILE
    try:
        if not path.exists() or path.stat().st_size == 0:
            _write_token(path, entropy_bytes)
        if path.stat().st_mode & _OTHERS:
            path.chmod(0o600)
        return _usable(path.read_text(encoding="utf-8", errors="replace").strip(), str(path))
    except OSError as error:
        if error.errno in NO_SPACE:
            raise disk_full(path) from error
        why = f"the token cannot be read or made ({error.strerror})"
        advice = f"check who owns it, or set {TOKEN_VARIABLE}"
        raise ConfigError([Problem(str(path), 0, f"{why}; {advice}")]) from error


def signed_in(url: str, token: str) -> str:
    """Return the address that opens the web chat signed in. Browsers do not send the part after
    #."""
    return f"{url}/#token={token}"


def _in_user_home(path: Path, environ: Mapping[str, str]) -> Path:
    if path.parts[:1] != ("~",):
        return path
    return Path(environ.get("HOME") or _home_of_user()).joinpath(*path.parts[1:])


def _home_of_user() -> str:
    """Return the home of this user from the system's list of users, where HOME is not set. A
    container may run us as a user id that is not on that list."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError as error:
        why = f"is not set, and user {os.getuid()} has no home folder"
        advice = f"choose where everything is kept with --home or {HOME_VARIABLE}"
        raise ConfigError([Problem("HOME", 0, f"{why}; {advice}")]) from error


def _close_to_others(home: Path) -> None:
    """Take the rights on the home away from other users."""
    mode = home.stat().st_mode
    if not mode & _OTHERS:
        return
    # A mistake such as `--home /tmp` must not lock other people and programs out of their folder.
    foreign = [each.name for each in home.iterdir() if each.is_dir() and each.name not in FOLDERS]
    if mode & stat.S_ISVTX or foreign:
        why = "this folder is shared with other users and holds more than Perdure's files"
        advice = f'choose another, or close it first: chmod 700 "{home}"'
        raise ConfigError([Problem(str(home), 0, f"{why}; {advice}")])
    home.chmod(0o700)


def _usable(token: str, source: str) -> str:
    """Return the token, or raise `ConfigError` if it is too weak or cannot be sent."""
    # The token is sent in a header and in a URL.
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        why = "holds no usable token: it must be printable ASCII without spaces"
    elif len(token) < TOKEN_MIN or len(set(token)) < TOKEN_SIGNS_MIN:
        why = f"holds a token that is too short: it could be guessed; use at least {TOKEN_MIN} "
        why += "random characters, such as `openssl rand -hex 32` prints"
    else:
        return token
    raise ConfigError([Problem(source, 0, f"{why}; delete or replace it")])


def _write_token(path: Path, entropy_bytes: Callable[[int], bytes]) -> None:
    """Write the token to a draft file, sync it, then give it its name.

    If the process dies before the last step, there is no token and the next start makes one; half a
    token never has the name. Linking does not replace a file: if two processes start at once, the
    first one's token stays and both read it.
    """
    token = base64.urlsafe_b64encode(entropy_bytes(32)).rstrip(b"=")
    draft = path.with_name(f".{path.name}.{entropy_bytes(8).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(token + b"\n")
            file.flush()
            os.fsync(file.fileno())
        _name(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _name(draft: Path, path: Path) -> None:
    """Give the draft its name, unless another process was first."""
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        if path.stat().st_size == 0:
            draft.replace(path)
    except OSError:
        # Not every file system has hard links. Without them, two first starts at the same time may
        # end up with different tokens.
        draft.replace(path)


def _sync_folder(folder: Path) -> None:
    """Sync the folder to disk, so that a power failure does not undo the new name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems refuse to sync a folder. The token itself is synced already.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
