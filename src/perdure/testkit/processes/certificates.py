"""Makes certificates for servers of tests. Each is its own authority."""

import shutil
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_COMMAND: Final = (
    *("openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=test"),
    *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
)


def can_make_certificates() -> bool:
    """Tell whether the program that makes them is installed."""
    return shutil.which(_COMMAND[0]) is not None


def made_certificate(file: Path, names: Sequence[str]) -> Path:
    """Write a key and a certificate into one file. Names look like `DNS:localhost`."""
    words = ["-addext", f"subjectAltName={','.join(names)}", "-keyout", str(file)]
    certificate = file.with_suffix(".crt")
    command = [*_COMMAND, *words, "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own words
    file.write_bytes(file.read_bytes() + certificate.read_bytes())
    return file


def server_context(certificate: Path) -> ssl.SSLContext:
    """Return the TLS settings of a server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context
