"""What the process finds around it: its variables, its home folder, its token.

This is the only reader of the process environment; everyone else is handed the mapping. The home
holds conversations and secrets, so it belongs to one user alone and the token is written whole or
not at all.
"""

import base64
import contextlib
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from perdure.app.toml_errors import ConfigError, Problem
from perdure.domain.errors import NO_SPACE, PerdureError, Transient

HOME_VARIABLE: Final = "PERDURE_HOME"
TOKEN_VARIABLE: Final = "PERDURE_TOKEN"  # noqa: S105 - a variable's name
TOKEN_FILE: Final = "token"  # noqa: S105 - a file's name
FOLDERS: Final = ("media", "logs")
SERVER_FILE: Final = "server.json"
DATABASE: Final = "perdure.db"
LOG_FILE: Final = "perdure.log"
OPERATOR: Final = "operator"

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def process_environ() -> Mapping[str, str]:
    """A copy of the process environment, taken now."""
    return dict(os.environ)


def home_folder(option: Path | None, environ: Mapping[str, str]) -> Path:
    """`--home` beats PERDURE_HOME beats `~/.perdure`. Always absolute: agents change folders."""
    named = option if option is not None else Path(environ.get(HOME_VARIABLE, ""))
    if named != Path():
        return _in_user_home(named, environ).absolute()
    return _in_user_home(Path("~/.perdure"), environ).absolute()


def prepare_home(home: Path) -> None:
    """Make the home and its folders, open to this user alone. Raises `ConfigError`, or `Transient`
    where there is no space for them."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _close_to_others(home)
        for name in FOLDERS:
            (home / name).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(home, error) from error


def check_home(home: Path) -> None:
    """For those who make no home: it need not be there, but nothing else may be in its place.
    Raises `ConfigError`."""
    try:
        os.scandir(home).close()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unusable(home, error) from error


def _unusable(home: Path, error: OSError) -> PerdureError:
    if error.errno in NO_SPACE:
        return disk_full(home)
    why = f"cannot be used as the home folder ({error.strerror})"
    advice = f"choose another with --home or {HOME_VARIABLE}"
    return ConfigError([Problem(str(home), 0, f"{why}; {advice}")])


def disk_full(path: Path) -> Transient:
    return Transient(
        f"{path}: the disk is full; free some space, then start again", code="disk_full"
    )


def home_token(
    home: Path, environ: Mapping[str, str], entropy_bytes: Callable[[int], bytes]
) -> str:
    """The operator's token: PERDURE_TOKEN, else the home's token file, made when missing."""
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


def _in_user_home(path: Path, environ: Mapping[str, str]) -> Path:
    if path.parts[:1] != ("~",):
        return path
    user_home = environ.get("HOME")
    return (Path(user_home) if user_home else Path.home()).joinpath(*path.parts[1:])


def _close_to_others(home: Path) -> None:
    mode = home.stat().st_mode
    if not mode & _OTHERS:
        return
    # A slip such as `--home /tmp` must not lock other people and programs out of their folder.
    foreign = [each.name for each in home.iterdir() if each.is_dir() and each.name not in FOLDERS]
    if mode & stat.S_ISVTX or foreign:
        why = "this folder is shared with other users and holds more than Perdure's files"
        advice = f'choose another, or close it first: chmod 700 "{home}"'
        raise ConfigError([Problem(str(home), 0, f"{why}; {advice}")])
    home.chmod(0o700)


def _usable(token: str, source: str) -> str:
    # The token travels in a header and in a URL.
    if token and token.isascii() and token.isprintable() and " " not in token:
        return token
    text = "holds no usable token: it must be printable ASCII without spaces; delete or replace it"
    raise ConfigError([Problem(source, 0, text)])


def _write_token(path: Path, entropy_bytes: Callable[[int], bytes]) -> None:
    """Write beside, sync, then give it its name.

    If we die before the last step there is no token and the next start makes one; a token cut in
    half never carries the name. Linking refuses to replace, so of two processes that start at once
    the first one's token stands and both read it.
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
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        if path.stat().st_size == 0:
            draft.replace(path)
    except OSError:
        # Not every file system has links; there two first starts at once may disagree.
        draft.replace(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems refuse to sync a folder; the token itself is synced already.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
