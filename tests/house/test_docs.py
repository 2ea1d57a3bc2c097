"""Checks that the documents describe the code: looks up every name in them, and runs every
example."""

import ast
import asyncio
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure.app.config import loading as config
from perdure.app.config import platforms
from perdure.app.config import tool_values as config_tool_values
from perdure.app.config import values as config_values
from perdure.app.config.loading import settings_without_effect
from perdure.domain.inbound.commands import COMMANDS
from perdure.domain.inbound.updates import UpdateEffect
from perdure.domain.journal.codec import KINDS
from perdure.domain.outcomes import Outcome
from perdure.domain.turn.turn import drawing
from perdure.domain.turn.watching import NAMES
from perdure.ports.platform.settings import AdapterSettings, DisplaySettings, Section
from perdure.testkit.processes.process import GatewayProcess
from perdure.web.openapi import CALLS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "perdure"
STATES = {"kept", "partly", "not yet built"}
PROMISES = [f"P{number}" for number in range(1, 25)]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TEST_ID = re.compile(r"tests/[\w/]+\.py::\w+")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SOURCE = re.compile(r"`((?:src/perdure/)?[a-z]+/[\w/]+\.(?:py|sql))`")


def documents() -> list[Path]:
    kept = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *PACKAGE.rglob("*.md")]
    return sorted(kept)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return [body for kind, body in _FENCE.findall(text_of(name)) if kind == language]


def section(name: str, heading: str) -> str:
    """Return the text under a heading, up to the next heading of any depth."""
    text = _FENCE.sub("", text_of(name))
    _, found, rest = text.partition(f"\n{heading}\n")
    assert found, f"{name} has no heading {heading!r}"
    return re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]


def table(text: str) -> list[list[str]]:
    """Return the rows of the tables in a text, without their heads."""
    rows = [
        [cell.strip() for cell in line.strip()[1:-1].split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    rules = [n for n, row in enumerate(rows) if set("".join(row)) == {"-"}]
    return [row for n, row in enumerate(rows) if n not in rules and n + 1 not in rules]


def bare(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@cache
def functions_of(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in nodes if isinstance(node, functions))


@pytest.mark.parametrize("path", documents(), ids=named)
def test_every_test_that_is_named_exists(path: Path) -> None:
    ids = _TEST_ID.findall(path.read_text(encoding="utf-8"))
    missing = [
        each
        for each in ids
        if each.partition("::")[2] not in functions_of(ROOT / each.split("::")[0])
    ]
    assert missing == []


@pytest.mark.parametrize("path", documents(), ids=named)
def test_every_link_leads_somewhere(path: Path) -> None:
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    broken = []
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", documents(), ids=named)
def test_every_source_file_that_is_named_exists(path: Path) -> None:
    names = _SOURCE.findall(path.read_text(encoding="utf-8"))
    places = [ROOT if name.startswith(("src/", "tests/", "bench/")) else PACKAGE for name in names]
    missing = [n for n, place in zip(names, places, strict=True) if not (place / n).is_file()]
    assert missing == []


def test_every_promise_has_a_state_and_its_proof() -> None:
    parts = re.split(r"^## (P\d+): ", text_of("docs/promises.md"), flags=re.MULTILINE)[1:]
    assert parts[::2] == PROMISES
    for number, text in zip(parts[::2], parts[1::2], strict=True):
        ((state, missing),) = re.findall(r"^State: \*\*(.+)\*\*\.(.*)$", text, re.MULTILINE)
        assert state in STATES, number
        is_told = missing.startswith(" Missing: ")
        assert is_told == (state == "partly"), f"{number}: say what is missing, or nothing"
        assert bool(_TEST_ID.findall(text)) == (state != "not yet built"), number


@pytest.mark.parametrize("name", ["docs/failure-modes.md", "docs/security-tests.md"])
def test_every_failure_and_every_attack_has_its_test(name: str) -> None:
    rows = table(text_of(name))
    assert len(rows) > 20
    assert [row[0] for row in rows if not _TEST_ID.search(row[-1])] == []


def test_the_drawing_of_the_turn_is_its_table() -> None:
    (drawn,) = blocks("ARCHITECTURE.md", "mermaid")
    assert drawn.strip() == drawing(), "print it with scripts/draw-turn-machine"


def test_every_function_of_the_walks_is_where_they_say() -> None:
    named = re.findall(r"`([\w/]+\.py):([\w.]+)`", section("ARCHITECTURE.md", "## Walks"))
    assert len(named) > 40
    for file, name in named:
        found: object = importlib.import_module(f"perdure.{file[:-3].replace('/', '.')}")
        for part in name.split("."):
            found = getattr(found, part, None)
        assert found is not None, f"there is no {name} in {file}"


def test_the_rooms_are_all_shown() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    shown = set(re.findall(r"^  (\w+)/ ", text_of("ARCHITECTURE.md"), re.MULTILINE))
    assert shown == rooms


def test_the_verbs_of_the_readme_are_those_of_the_program() -> None:
    listed = {bare(row[0])[0] for row in table(section("README.md", "## Verbs"))}
    verbs = set(helped())
    for group in [verb for verb in verbs if " " not in verb]:
        nested = set(helped(group))
        verbs = (verbs - {group} if nested else verbs) | {f"{group} {each}" for each in nested}
    assert listed == {f"perdure {verb}" for verb in verbs}


def helped(*group: str) -> list[str]:
    """Return the verbs that the program's own help lists."""
    shown = subprocess.run(
        [sys.executable, "-m", "perdure", *group, "--help"],
        check=True,
        capture_output=True,
        text=True,
    )
    _, _, commands = shown.stdout.partition("Commands:\n")
    return re.findall(r"^  (\w[\w-]*)", commands.partition("\n\n")[0], re.MULTILINE)


def test_every_call_is_documented_and_no_other() -> None:
    listed = [bare(row[0])[0] for row in table(section("docs/api.md", "## Calls"))]
    assert sorted(listed) == sorted(f"{call.method.upper()} {call.path}" for call in CALLS)


def test_every_command_is_documented_and_no_other() -> None:
    text = _FENCE.sub("", text_of("docs/commands.md"))
    listed = re.findall(r"^\| `(/[^`]+)` \|", text, re.MULTILINE)
    assert [each.replace(r"\|", "|") for each in listed] == [c.usage for c in COMMANDS.values()]
    for command in COMMANDS.values():
        assert [each for each in command.aliases if f"`/{each}`" not in text] == [], command.name
    rows = table(section("README.md", "## Commands"))
    named = [each.removeprefix("/") for row in rows for each in bare(row[0])]
    assert sorted(named) == sorted(COMMANDS)


def test_the_events_are_those_of_the_code() -> None:
    kinds = [bare(row[0])[0] for row in table(section("docs/api.md", "## The journal"))]
    assert kinds == list(KINDS)
    news = [bare(row[0])[0] for row in table(section("docs/api.md", "## Watch"))]
    assert news == list(NAMES.values())
    outcomes = [each for row in table(section("docs/api.md", "## Read")) for each in bare(row[0])]
    assert set(outcomes) == set(Outcome)


def test_every_error_code_is_raised_somewhere() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    codes = [code for row in table(section("docs/api.md", "## Errors")) for code in bare(row[1])]
    assert len(codes) > 20
    assert [code for code in codes if f'"{code}"' not in sources] == []


# No HTTP call can meet these codes: they are raised at the start, in tools, while files are
# fetched, or in a check that is preceded by another one.
NOT_TOLD = {
    *(
        "in_use",
        "newer_schema",
        "other_schema",
        "memory_empty",
        "memory_full",
        "memory_too_long",
        "too_large",
    ),
    *("already_", "error", "fenced", "permanent"),
}


def test_every_error_code_that_callers_meet_is_documented() -> None:
    rooms = [path for room in ("web", "store", "engine", "domain") for path in room_of(room)]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in rooms)
    raised = set(re.findall(r'(?:\bcode=|default_code(?:: ClassVar\[str\])? = )"(\w+)"', sources))
    raised |= set(re.findall(r'\bproblem\(\s*\d+, "(\w+)"', sources))
    codes = {code for row in table(section("docs/api.md", "## Errors")) for code in bare(row[1])}
    assert len(raised) > 40
    assert raised - codes == NOT_TOLD


def room_of(name: str) -> Iterator[Path]:
    return (PACKAGE / name).rglob("*.py")


def test_every_effect_over_http_is_documented() -> None:
    # Pieces of an album, edits and deletions come only from platforms.
    text = section("docs/api.md", "## Send")
    elsewhere = {
        UpdateEffect.JOINED,
        UpdateEffect.AMENDED,
        UpdateEffect.CANCELLED,
        UpdateEffect.IGNORED,
    }
    assert {each for each in UpdateEffect if f"`{each}`" not in text} == elsewhere


def test_the_metrics_are_those_of_the_code() -> None:
    source = (PACKAGE / "web" / "measuring" / "metrics.py").read_text(encoding="utf-8")
    rows = table(section("docs/operations.md", "## Metrics"))
    listed = {bare(row[0])[0].removesuffix("_total") for row in rows}
    assert listed == set(re.findall(r'"(perdure_\w+)"', source))


SECTIONS: dict[str, tuple[type[Section], ...]] = {
    "### `[server]`": (config_values.ServerConfig,),
    "### `[network]`": (config_values.NetworkConfig,),
    "### `[store]`": (config_values.StoreConfig,),
    "### `[schedule]`": (config_values.ScheduleConfig,),
    "### `[notices]`": (config_values.NoticesConfig,),
    "### `[agents.NAME]`": (config_values.AgentSection,),
    '### `[agents.NAME] kind = "chat"`': (
        config_values.ChatAgentSection,
        config_values.AgentSection,
    ),
    '### `[agents.NAME] kind = "acp"`': (config_values.AcpAgent, config_values.AgentSection),
    "### `[agents.NAME.pool]`": (config_values.Pool,),
    '### `[agents.NAME] kind = "demo"`': (
        config_values.DemoAgentSection,
        config_values.AgentSection,
    ),
    "### `[agents.NAME.prices]`": (config_values.PricesSection,),
    "### `[[agents.NAME.rules]]`": (config_values.RuleSection,),
    "### `[tools]`": (config_tool_values.ToolsConfig,),
    "### `[tools.NAME]`": (config_tool_values.ToolSection,),
    "### `[tools.files]`": (config_tool_values.FilesSection, config_tool_values.ToolSection),
    "### `[tools.shell]`": (config_tool_values.ShellSection, config_tool_values.ToolSection),
    "### `[tools.search]`": (config_tool_values.SearchSection, config_tool_values.ToolSection),
    "### `[tools.mcp.NAME]`": (config_tool_values.McpServer,),
    "### `[personas.NAME]`": (config_values.PersonaConfig,),
    "### `[recovery]`": (config_values.RecoveryConfig,),
    "### `[drain]`": (config_values.DrainConfig,),
    "### `[turns]`": (config_values.TurnsConfig,),
    "### `[limits]`": (config_values.LimitsConfig,),
    "### `[transcriber]`": (config_values.TranscriberConfig,),
    "### `[speech]`": (config_values.SpeechConfig,),
    "### `[delivery]`": (config_values.DeliveryConfig,),
    "### `[sessions]`": (config_values.SessionsConfig,),
    "### `[adapters.NAME]`": (AdapterSettings,),
    "### `[adapters.NAME.display]`": (DisplaySettings,),
    "### `[budgets.person.daily]`": (config_values.BudgetSection,),
    "### `[quotas.member]`": (config_values.MemberQuotas,),
}
# Sections of which no key has an effect in this version.
SECTIONS_WITHOUT_EFFECT = {
    "[retention]": (config_values.RetentionConfig,),
}
WITHOUT_EFFECT = "### Settings without effect"


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_setting_is_documented_with_its_default(heading: str) -> None:
    rows = table(section("docs/operations.md", heading))
    documented = {bare(row[0])[0]: row[2] for row in rows}
    idle = keys_without_effect(heading.removeprefix("### ").strip("`"))
    assert documented.keys() & idle.keys() == set()
    assert_documented(SECTIONS[heading], documented | idle)


@pytest.mark.parametrize("name", SECTIONS_WITHOUT_EFFECT)
def test_every_setting_without_effect_is_in_the_list(name: str) -> None:
    assert_documented(SECTIONS_WITHOUT_EFFECT[name], keys_without_effect(name))


def test_the_list_of_settings_without_effect_names_no_other_section() -> None:
    listed = {bare(row[0])[0] for row in table(section("docs/operations.md", WITHOUT_EFFECT))}
    known = {heading.removeprefix("### ").strip("`") for heading in SECTIONS}
    assert listed - known == set(SECTIONS_WITHOUT_EFFECT)


def test_the_keys_in_the_list_are_those_that_the_start_names() -> None:
    # The type of a key in the list is asked for, so a new one needs a value for its type here.
    values = {"days": 1}
    rows = table(section("docs/operations.md", WITHOUT_EFFECT))
    for name, key, kind, _, _ in rows:
        heading, setting = bare(name)[0], bare(key)[0]
        file = f"{heading}\n{setting} = {values[kind]}\n"
        settings = config.parse(file.encode(), Path("perdure.toml"), {})
        assert list(settings_without_effect(settings)) == [f"{heading} {setting}"]


def keys_without_effect(name: str) -> dict[str, str]:
    """Return the default of each key of a section that is in the list of those without effect."""
    rows = table(section("docs/operations.md", WITHOUT_EFFECT))
    return {bare(row[1])[0]: row[3] for row in rows if bare(row[0]) == [name]}


def assert_documented(shapes: tuple[type[msgspec.Struct], ...], documented: dict[str, str]) -> None:
    """Compare the documented keys with the fields of the first shape that no other shape has."""
    shape, *general = shapes
    elsewhere = {field.name for each in general for field in msgspec.structs.fields(each)}
    fields = {
        field.name: field for field in msgspec.structs.fields(shape) if field.name not in elsewhere
    }
    assert documented.keys() == fields.keys()
    for name, cell in documented.items():
        assert default_in_words(fields[name]) == in_words(cell), name


def default_in_words(field: msgspec.structs.FieldInfo) -> object:
    match field.default:
        case msgspec.NODEFAULT:
            return "required"
        case config.Secret() as secret:
            return secret.reveal()
        case Section():
            return "see below"
        case tuple() as values:
            return list(values)
        case None:
            return "none"
        case value if value == {}:
            return "none"
        case value:
            return value


def in_words(cell: str) -> object:
    return tomllib.loads(f"value = {cell.strip('`')}")["value"] if cell[0] == "`" else cell


def test_every_section_of_the_file_is_documented() -> None:
    headings = "\n".join([*SECTIONS, *(f"`{name}`" for name in SECTIONS_WITHOUT_EFFECT)])
    top = [field.name for field in msgspec.structs.fields(config_values.Config)]
    assert [name for name in top if f"`[{name}" not in headings] == []


@pytest.mark.parametrize("name", platforms.BUILT_IN)
def test_every_platform_has_a_page_with_its_own_settings(name: str) -> None:
    page = (ROOT / "docs" / "adapters" / f"{name}.md").read_text(encoding="utf-8")
    common = {field.name for field in msgspec.structs.fields(AdapterSettings)}
    own = [f.name for f in msgspec.structs.fields(platforms.manifest(name).settings)]
    assert f"[adapters.{name}" in page
    assert [key for key in own if key not in common and f"`{key}`" not in page] == []


@pytest.mark.parametrize("path", documents(), ids=named)
def test_configurations_that_are_shown_can_be_used(path: Path) -> None:
    for block in blocks(named(path), "toml"):
        environ = dict.fromkeys(re.findall(r'env = "(\w+)"', block), "k")
        assert config.parse(block.encode(), ROOT / "perdure.toml", environ).agents


def test_what_a_module_offers_is_there() -> None:
    modules = [m.name for m in pkgutil.walk_packages(perdure.__path__, "perdure.")]
    assert len(modules) > 100
    for name in modules:
        if name == "perdure.__main__":
            continue
        offered = getattr(importlib.import_module(name), "__all__", [])
        module: Any = sys.modules[name]
        assert [each for each in offered if not hasattr(module, each)] == [], name
        assert len(offered) == len(set(offered)), name


def localised(text: str, gateway: GatewayProcess) -> str:
    """Return an example with this gateway's address and home in place of the reader's."""
    for written, meant in [
        ("http://127.0.0.1:8585", gateway.url),
        ("~/.perdure", str(gateway.home)),
        ("perdure chat", f"{sys.executable} -m perdure --home {gateway.home} chat"),
    ]:
        text = text.replace(written, meant)
    return text


async def output_of(folder: Path, *command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(30):
        shown, _ = await process.communicate()
    assert process.returncode == 0, shown.decode()
    return shown.decode()


def scripts(name: str) -> Iterator[str]:
    for block in blocks(name, "sh"):
        if "podman" not in block:
            yield block


@pytest.mark.parametrize("name", ["README.md", "docs/api.md"])
async def test_the_examples_for_the_shell_work(
    name: str, gateway: GatewayProcess, tmp_path: Path
) -> None:
    script = "set -euo pipefail\n" + "\n".join(scripts(name))
    assert "curl" in script
    shown = await output_of(tmp_path, "bash", "-c", localised(script, gateway))
    assert '"error"' not in shown
    assert "beans" in shown or '"duplicate":false' in shown


async def test_the_example_for_openai_clients_works(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    (example,) = blocks("README.md", "python")
    shown = await output_of(tmp_path, sys.executable, "-c", localised(example, gateway))
    assert "And when do I pick them?" in shown


async def test_the_copy_of_a_running_database_is_whole(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    (example,) = blocks("docs/operations.md", "python")
    await output_of(tmp_path, "bash", "-c", localised('echo "beans" | perdure chat', gateway))
    await output_of(gateway.home, sys.executable, "-c", example)
    restored = tmp_path / "restored"
    restored.mkdir(mode=0o700)
    (gateway.home / "copy.db").rename(restored / "perdure.db")
    verdict = await output_of(
        tmp_path, sys.executable, "-m", "perdure", "--home", str(restored), "verify"
    )
    # The conversation's title is written in a second session, which may have been copied too.
    assert re.fullmatch(r"[12] sessions: all sound\n", verdict)


def test_the_list_of_changes_begins_with_this_version() -> None:
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert heading is not None
    assert heading[1].rstrip(",") == perdure.__version__
