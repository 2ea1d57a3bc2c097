"""Checks the guide for authors of adapters: its example is found and configured, and keeps every
promise."""

import re
import sys
import tomllib
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path

import pytest

from perdure.app.config import platforms
from perdure.app.config.loading import ConfigError, parse
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.errors import Rejected
from perdure.domain.secret import Secret
from perdure.ports.platform.adapter import Platform
from perdure.ports.platform.manifest import no_answers
from perdure.testkit.contract.adapter_case import AdapterCase
from perdure.testkit.contract.adapter_suite import AdapterContract

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "tests" / "peers" / "thirdparty"
GUIDE = ROOT / "docs" / "writing-an-adapter.md"
SECTION = '[adapters.noticeboard]\nurl = "{url}"\ntoken = "{token}"\nallow = ["ada"]\n'
MODULES = ("noticeboard", "board")
GROUP = "perdure.adapters"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the example as pip would: its modules and its metadata."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = tmp_path / "site" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    entries = [f"{name} = {value}" for name, value in project["entry-points"][GROUP].items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *entries, ""]))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(info.parent))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)


def made(folder: Path, url: str, token: str) -> Platform:
    section = SECTION.format(url=url, token=token)
    config = parse(section.encode(), folder / "perdure.toml", {})
    return platforms.platforms(
        config.adapters,
        home=folder,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        hook_url=lambda _: "",
        answers=lambda _: no_answers,
    )["noticeboard"]


class TestNoticeboard(AdapterContract):
    @pytest.fixture
    async def case(self, installed: None, tmp_path: Path) -> AsyncIterator[AdapterCase]:
        board = import_module("board")
        async with board.Board().open() as server:
            case: AdapterCase = board.BoardCase(
                made(tmp_path, server.url, board.TOKEN),
                server,
                impostor=made(tmp_path, server.url, "a guess"),
                clock=SystemClock(),
            )
            async with case.connected():
                yield case


def test_a_platform_of_others_is_found_by_its_entry_point(installed: None) -> None:
    assert platforms.names() == sorted([*platforms.BUILT_IN, "noticeboard"])
    assert platforms.manifest("noticeboard").title == "Noticeboard"


def test_a_platform_whose_adapter_has_one_name_is_configured_once(
    installed: None, tmp_path: Path
) -> None:
    section = SECTION.format(url="http://127.0.0.1:1", token="t")
    text = section.replace("noticeboard]", 'other]\nplatform = "noticeboard"')
    config = parse(text.encode(), tmp_path / "perdure.toml", {})
    with pytest.raises(Rejected, match=r"must be called \[adapters.noticeboard\]"):
        platforms.platforms(
            config.adapters,
            home=tmp_path,
            clock=SystemClock(),
            entropy=SystemEntropy(),
            hook_url=lambda _: "",
            answers=lambda _: no_answers,
        )


def test_the_section_of_such_a_platform_is_read_like_any_other(
    installed: None, tmp_path: Path
) -> None:
    file = tmp_path / "perdure.toml"
    text = SECTION.format(url="http://127.0.0.1:1", token="t")
    settings = parse(text.encode(), file, {}).adapters["noticeboard"]
    assert settings.token == Secret("t")
    assert settings.allow == ("ada",)
    with pytest.raises(ConfigError) as refused:
        parse(text.replace("url", "urn").encode(), file, {})
    assert "url" in str(refused.value)


def test_an_unknown_platform_is_told_which_are_known(installed: None, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="noticeboard"):
        platforms.manifest("carrier-pigeon")
    with pytest.raises(ConfigError) as refused:
        parse(b"[adapters.notice-board]\n", tmp_path / "perdure.toml", {})
    assert "noticeboard" in str(refused.value)


def test_a_platform_that_is_not_installed_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(Rejected):
        platforms.manifest("noticeboard")


def test_the_guide_shows_the_example_as_it_is() -> None:
    files = [*sorted(EXAMPLE.glob("*.*")), Path(__file__)]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in files)
    shown = re.findall(
        r"^```(?:python|ini)\n(.*?)^```$",
        GUIDE.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert len(shown) > 5
    assert [block for block in shown if not is_excerpt(block, sources)] == []


def is_excerpt(block: str, source: str) -> bool:
    """Tell whether each piece between two `...` stands in the source, in this order."""
    at = 0
    for piece in re.split(r"^ *\.\.\.\n", block, flags=re.MULTILINE):
        at = source.find(piece.strip("\n"), at)
        if at < 0:
            return False
    return True
