"""Reads how other servers are reached: the proxies, and the certificate authorities.

`[network]` wins over the variables. Everything is checked before the node does anything else, so
that a mistake is told at the start and not by every call that fails.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from perdure.app.config.toml_errors import ConfigError, Problem
from perdure.app.config.toml_positions import Positions
from perdure.app.config.values import (
    Config,
    NetworkConfig,
)
from perdure.app.network.proxies import (
    RULE,
    Proxies,
    Proxy,
    UnusableProxy,
    exemptions_of,
    proxy_of,
)

CA_VARIABLE: Final = "SSL_CERT_FILE"
CA_FOLDER_VARIABLE: Final = "SSL_CERT_DIR"
EXEMPTIONS_VARIABLE: Final = "NO_PROXY"
# For each scheme of servers the variables that may name its proxy. The first one that is set wins.
_FOR_HTTPS: Final = ("HTTPS_PROXY", "ALL_PROXY")
_FOR_HTTP: Final = ("HTTP_PROXY", "ALL_PROXY")


class NetworkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how other servers are reached. `trusted` is None where only the authorities of the
    system are trusted."""

    proxies: Proxies
    trusted: ssl.SSLContext | None = None


def network_of(config: Config, path: Path, environ: Mapping[str, str]) -> NetworkSettings:
    """Return how other servers are reached. `path` is the configuration file. Raises
    `ConfigError`."""
    check_ca_file(config.network, path)
    return NetworkSettings(
        proxies=proxies_from(config.network, environ), trusted=_trusted(config, path, environ)
    )


def proxies_from(network: NetworkConfig, environ: Mapping[str, str]) -> Proxies:
    """Return the proxies. Raises `ConfigError` for a variable that names none."""
    exemptions = exemptions_of(_variable(environ, EXEMPTIONS_VARIABLE)[1])
    if network.proxy is not None:
        # Its form was checked together with the rest of the file.
        proxy = proxy_of(network.proxy.reveal())
        return Proxies(http=proxy, https=proxy, exemptions=exemptions)
    return Proxies(
        http=_first(_FOR_HTTP, environ), https=_first(_FOR_HTTPS, environ), exemptions=exemptions
    )


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that the first of these variables names, or None."""
    for each in names:
        name, value = _variable(environ, each)
        if value:
            try:
                return proxy_of(value)
            except UnusableProxy as error:
                why = f"must be {RULE}: {error}; correct or unset it"
                raise ConfigError([Problem(name, 0, why)]) from error
    return None


def _variable(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return the name and the value of a variable that may be written in small letters. As
    elsewhere, that spelling wins."""
    for each in (name.lower(), name):
        value = environ.get(each, "").strip()
        if value:
            return each, value
    return name, ""


def check_ca_file(network: NetworkConfig, path: Path) -> None:
    """Refuse a file of authorities that cannot be read, with the line that names it. Raises
    `ConfigError`."""
    if network.ca_file is None:
        return
    file = ca_path(network.ca_file, path)
    why = _unreadable(file) or ("it is empty" if not file.stat().st_size else "")
    if why:
        line = Positions(path.read_text(encoding="utf-8-sig")).line(("network", "ca_file"))
        text = f"[network] ca_file: {file} cannot be used ({why}); {_ADVICE}"
        raise ConfigError([Problem(str(path), line, text)])


_ADVICE: Final = "it must hold certificates of authorities in PEM form"


def ca_path(name: str, path: Path) -> Path:
    """Return the file of authorities. A relative one is looked up beside the configuration."""
    return path.parent / Path(name).expanduser()


def _trusted(config: Config, path: Path, environ: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return what TLS connections trust: what the variables or the system name, and also
    `ca_file`."""
    variable = environ.get(CA_VARIABLE, "")
    if variable and (why := _unreadable(Path(variable))):
        text = f"{variable} cannot be used ({why}); {_ADVICE}, or unset the variable"
        raise ConfigError([Problem(CA_VARIABLE, 0, text)])
    if not (variable or environ.get(CA_FOLDER_VARIABLE) or config.network.ca_file):
        return None
    # OpenSSL reads the variables itself.
    context = ssl.create_default_context()
    if config.network.ca_file is not None:
        context.load_verify_locations(ca_path(config.network.ca_file, path))
    return context


def _unreadable(file: Path) -> str:
    """Return why no certificates can be read from a file, or an empty text. An empty file is
    readable: it trusts nobody."""
    try:
        if file.is_dir():
            return "it is a folder"
        if not file.read_bytes():
            return ""
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except ssl.SSLError:
        return "it holds no certificate, or a broken one"
    except OSError as error:
        return error.strerror or "it cannot be read"
    return ""
