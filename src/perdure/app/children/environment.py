"""Makes the environment of programs that are started."""

import os
from collections.abc import Mapping
from typing import Final

# What a program gets of the gateway's own environment. Keys and tokens may stand in any other
# variable, so nothing else is passed on unless the configuration names it.
PASSED_ON: Final = (
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "NODE_EXTRA_CA_CERTS", "PATH", "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR", "SSL_CERT_FILE", "TERM", "TMPDIR", "TZ", "USER",
)  # fmt: skip
_LOCALE: Final = "LC_"


def child_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program: the short list, and what the configuration adds."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith(_LOCALE)
    }
    return {"PATH": os.defpath, "LANG": "C.UTF-8", **kept, **added}
