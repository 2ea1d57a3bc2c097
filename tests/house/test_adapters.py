"""Checks that each platform's page claims what tests have proved, and no more.

`python tests/house/test_adapters.py` writes the table of platforms again.
"""

import ast
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from perdure.app.config.loading import parse
from perdure.app.config.platforms import BUILT_IN, manifest, platforms
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities, Streaming
from perdure.domain.markdown.units import TextUnit
from perdure.ports.platform.manifest import Manifest, Quality, no_answers

ROOT = Path(__file__).resolve().parents[2]
ADAPTERS = ROOT / "src" / "perdure" / "adapters"
PAGES = ROOT / "docs" / "adapters"
TABLE = PAGES / "README.md"

SHAPE = {"__init__.py", "manifest.py", "inbound.py", "render.py", "adapter.py", "wire.py"}
# The peers by their authors. All other peers in the test kit are the project's own.
REAL_SERVERS = {"synapse"}
BY_OTHERS = REAL_SERVERS | {
    "discord_twin", "emulate_slack", "local_slack", "simcord_server", "telegram_test_api",
    "telemelya",
}  # fmt: skip
_PEER = re.compile(r"from perdure\.testkit\.peers\.(?:\w+\.)?(\w+) import")

# Enough to construct each platform. Nothing is connected.
SECTIONS = f"""
[adapters.discord]
token = "t"
[adapters.matrix]
homeserver = "http://127.0.0.1:1"
user = "@bot:example.org"
token = "t"
[adapters.slack]
token = "xoxb-t"
app_token = "xapp-t"
[adapters.telegram]
token = "700:t"
[adapters.webhook.routes.alarms]
secrets = ["whsec_{"A" * 43}="]
"""
PLACES = {
    "discord": ("1", "2", ""),
    "matrix": ("!a:example.org", "!b:example.org", ""),
    "slack": ("D1", "C1", "1.1"),
    "telegram": ("42", "-100", ""),
    "webhook": ("alarms", "alarms", ""),
}


def source(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_package_has_the_same_shape(name: str) -> None:
    files = {path.name for path in (ADAPTERS / name).glob("*.py")}
    assert sorted(SHAPE - files) == []


def test_no_package_is_left_out() -> None:
    packages = {path.parent.name for path in ADAPTERS.glob("*/__init__.py")}
    assert packages == set(BUILT_IN)


def test_a_manifest_imports_nothing_of_its_platform() -> None:
    # Every start imports all manifests, also where a platform's library is not installed.
    names = [f"perdure.adapters.{name}.manifest" for name in BUILT_IN]
    script = f"import sys, {', '.join(names)}; print('\\n'.join(sys.modules))"
    shown = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    loaded = set(shown.stdout.split())
    heavy = {manifest(name).needs for name in BUILT_IN} | {"aiohttp", "asyncio", "nio"}
    parts = {f"perdure.adapters.{name}.{part}" for name in BUILT_IN for part in ("adapter", "wire")}
    assert loaded & (heavy | parts) == set()


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_quality_is_what_was_proved(name: str) -> None:
    assert manifest(name).quality is proved(name)


def proved(name: str) -> Quality | None:
    if not is_in_suite(name):
        return None
    peers = set().union(*(_PEER.findall(path.read_text()) for path in end_to_end(name)))
    if peers & REAL_SERVERS:
        return Quality.GOLD
    return Quality.SILVER if peers & BY_OTHERS else Quality.BRONZE


def is_in_suite(name: str) -> bool:
    classes = ast.walk(ast.parse(source("tests/contract/test_adapters.py")))
    held = {
        node.name
        for node in classes
        if isinstance(node, ast.ClassDef) and ast.unparse(node.bases[0]) == "AdapterContract"
    }
    return f"Test{name.title()}" in held


def end_to_end(name: str) -> list[Path]:
    found = sorted((ROOT / "tests" / "e2e").glob(f"test_{name}_*.py"))
    assert found, f"nothing runs {name} end to end"
    return found


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_nobody_could_check_is_named_to_operators(name: str) -> None:
    page = " ".join((PAGES / f"{name}.md").read_text(encoding="utf-8").lower().split())
    assert [each for each in manifest(name).unproved if each.lower() not in page] == []


def test_the_table_of_platforms_is_that_of_the_code() -> None:
    assert TABLE.read_text(encoding="utf-8") == page(), (
        f"write it anew: python {Path(__file__).relative_to(ROOT)}"
    )


def page() -> str:
    rows = [row(manifest(name), *capabilities()[name]) for name in BUILT_IN]
    lines = [f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *rows)]
    return TEXT.format(table="\n".join(lines), unproved=unproved())


HEAD = [
    "platform", "quality", "an answer grows", "edits", "deletes", "reactions", "buttons",
    "files up to", "typing", "longest message", "sent once for sure by",
]  # fmt: skip

TEXT = """# Platforms

What each built-in adapter can do, by its own capabilities. A house test compares this page with
the code.

{table}

**Quality**: *bronze*: the adapter passes the suite that every adapter is held against. *silver*: it
also runs end to end against a server or an emulator that others wrote. *gold*: that server is the
platform's own.

**Sent once for sure by**: how the gateway knows, after a broken connection, that a message is not
shown twice. Where there is no way, it is not sent again but shown as unknown.

What no server could check here:

{unproved}

To add a platform: [Writing an adapter](../writing-an-adapter.md).
"""


@cache
def capabilities() -> dict[str, tuple[Capabilities, Capabilities]]:
    """Return each platform's capabilities, in a private place and in a group."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        made = platforms(
            parse(SECTIONS.encode(), home / "perdure.toml", {}).adapters,
            home=home,
            clock=SystemClock(),
            entropy=SystemEntropy(),
            hook_url=lambda _: "",
            answers=lambda _: no_answers,
        )
    found = {}
    for name, (private, group, thread) in PLACES.items():
        alone = Address(adapter=name, account="bot", place=private)
        among = Address(adapter=name, account="bot", place=group, thread=thread)
        found[name] = (made[name].capabilities(alone), made[name].capabilities(among))
    return found


def row(known: Manifest, private: Capabilities, group: Capabilities) -> list[str]:
    return [
        f"[{known.title}]({known.name}.md)",
        known.quality,
        streams(private, group),
        *(yes(has=has) for has in (private.can_edit, private.can_delete, private.can_react)),
        yes(has=private.choices_max > 0),
        size(private.upload_bytes_max),
        yes(has=private.typing_s > 0),
        f"{private.text_max:,} {UNITS[private.unit]}",
        certainty(private),
    ]


STREAMS = {
    Streaming.NATIVE: "as a stream of the platform's own",
    Streaming.DRAFT: "as a draft",
    Streaming.EDIT: "by edits",
    Streaming.NONE: "no",
}
UNITS = {TextUnit.CHARS: "characters", TextUnit.UTF16: "UTF-16 units", TextUnit.BYTES: "bytes"}


def streams(private: Capabilities, group: Capabilities) -> str:
    alone, among = STREAMS[private.streaming], STREAMS[group.streaming]
    return alone if alone == among else f"{alone}; in groups {among}"


def certainty(can: Capabilities) -> str:
    if can.takes_key:
        return "a key that it keeps"
    return "asking for it" if can.can_find else "no way"


def size(limit: int) -> str:
    megabyte = 1_000_000 if limit % 1_000_000 == 0 else 1024 * 1024
    return f"{limit // megabyte} MB" if limit else "no"


def yes(*, has: bool) -> str:
    return "yes" if has else "no"


def unproved() -> str:
    named = [(manifest(name).title, manifest(name).unproved) for name in BUILT_IN]
    return "\n".join(f"- {title}: {', '.join(features)}" for title, features in named if features)


if __name__ == "__main__":
    TABLE.write_text(page(), encoding="utf-8")
