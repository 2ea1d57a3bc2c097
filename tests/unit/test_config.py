"""Checks what the configuration file means, and what a person is told when it is wrong."""

import base64
import json
import os
import pickle
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from perdure.app.children.children import LaunchedChildren
from perdure.app.config.environment import home_folder, home_token, prepare_home
from perdure.app.config.loading import (
    AcpAgent,
    ChatAgentSection,
    Config,
    ConfigError,
    DemoAgentSection,
    Secret,
    StoreConfig,
    load,
    parse,
    reload,
    restart_keys,
)
from perdure.app.config.platforms import platforms
from perdure.app.config.toml_positions import Positions
from perdure.app.config.tool_checks import check_folders
from perdure.app.config.tool_values import (
    FILE_ACTS,
    FILES,
    SHELL,
    SHELL_ACTS,
)
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.errors import Rejected
from perdure.ports.platform.manifest import no_answers
from perdure.ports.system import sandbox
from perdure.tools.builtin.files.tool import FilesTool
from perdure.tools.shell.jobs import ShellJobs
from perdure.tools.shell.settings import ShellSettings
from perdure.tools.shell.tool import ShellTool

CHAT = '[agents.main]\nkind = "chat"\nmodel = "m"\n'
KEY = "whsec_" + base64.b64encode(bytes(32)).decode()
ROUTES = "[adapters.webhook.routes.ci]\n"
ROUTE = f"{ROUTES}secrets = ['{KEY}']\n"
TIME = "[tools.mcp.t]\nurl = 'http://h'\n"
BOT = "[adapters.telegram]\ntoken = 't'\n"
MATRIX = "[adapters.matrix]\nhomeserver = 'http://h'\n"

FULL = """
[server]
host = "0.0.0.0"
port = 0
busy = "steer"
base_url = "https://chat.example.org/perdure"

[store]
url = { env = "DATABASE" }

[agents.zeta]
kind = "chat"
api = "anthropic"
model = "big"
api_key = { env = "KEY" }
instructions = "Be brief."
context_tokens = 64_000
compact_at = 0.5
tools = ["memory", "mcp.time"]
fallbacks = ["alpha"]
concurrent = 4
compact_agent = "alpha"
prices = { input = 3, output = 15.0, cached = 0.3 }
headers = { X-Team = "blue" }
max_tokens = 100
temperature = 0
connect_timeout_s = 1
first_token_timeout_s = 2.5
silence_timeout_s = 3

[agents.alpha]
kind = "demo"
concurrent = 1

[agents.gemini]
kind = "acp"
command = ["gemini", "--acp"]
preset = "gemini"
env = { TOKEN = { file = "token.txt" }, MODE = "fast" }
cwd = "/srv/work"
roots = ["~/notes"]
own_tools = true
sandbox = "off"
share = false
silence_timeout_s = 60
approve = { permission = "once" }
rules = [{ tool = "permission.execute", match = "git status*", do = "allow" }]
pool = { processes = 2, prewarm = false, sessions_per_process = 8, idle_s = 60 }

[tools.mcp.time]
command = ["mcp-server-time"]
approve = "once"

[tools.mcp.web]
url = "http://127.0.0.1:9000/mcp"

[adapters.telegram]
token = "1:abc"
api_url = "http://127.0.0.1:8081"
allow = ["123456789"]
pairing = false
agent = "alpha"
busy = "queue"
stream = false
groups = "person"
mention = false

[recovery]
resume = "ask"
freshness_s = 0
attempts_max = 5

[drain]
timeout_s = 0.5

[sessions]
titles = false
idle_reset_s = 60

[turns]
concurrent = 5
timeout_s = 10
steps_max = 2

[delivery]
expire_s = 60

[limits]
body_bytes = 1000
queued_per_conversation = 2

[retention]
closed_days = 30

[budgets.person.daily]
tokens = 2_000_000
money = 1.5

[budgets.agent.daily]
tokens = 0
"""


def read(text: str, *, home: Path = Path(), environ: Mapping[str, str] | None = None) -> Config:
    return parse(text.encode(), home / "perdure.toml", environ or {})


def complaints(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, environ=environ)
    assert str(caught.value) == "\n".join(str(problem) for problem in caught.value.problems)
    return [str(problem) for problem in caught.value.problems]


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    config = load(tmp_path, {})

    assert config == Config()
    assert (config.server.host, config.server.port, config.server.busy) == (
        "127.0.0.1",
        8585,
        "queue",
    )
    assert config.store.is_sqlite
    assert config.default_agent == "main"
    assert (config.recovery.resume, config.recovery.freshness_s) == ("continue", 3600)
    assert (config.turns.concurrent, config.turns.timeout_s) == (10_000, 1800)
    assert config.limits.body_bytes == 10_000_000


def test_every_key_of_every_section_is_read(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text(FULL)
    (tmp_path / "token.txt").write_text("from-file\n")

    config = load(tmp_path, {"DATABASE": "postgresql://u:pw@db/perdure", "KEY": "sk-1"})

    assert config.server.port == 0
    assert config.store.url == Secret("postgresql://u:pw@db/perdure")
    assert not config.store.is_sqlite
    zeta, alpha, gemini = config.agents.values()
    assert isinstance(zeta, ChatAgentSection)
    assert isinstance(alpha, DemoAgentSection)
    assert isinstance(gemini, AcpAgent)
    assert zeta.base_url == "https://api.anthropic.com"
    assert zeta.api_key == Secret("sk-1")
    assert zeta.headers == {"X-Team": Secret("blue")}
    assert zeta.prices is not None
    assert zeta.prices.cached == 0.3
    assert (zeta.temperature, zeta.first_token_timeout_s) == (0.0, 2.5)
    assert gemini.env == {"TOKEN": Secret("from-file"), "MODE": Secret("fast")}
    assert gemini.pool.idle_s == 60
    assert config.tools.mcp["time"].command == ("mcp-server-time",)
    assert config.adapters["telegram"].groups == "person"
    assert config.drain.timeout_s == 0.5
    assert config.budgets.person.daily is not None
    assert config.budgets.person.daily.money == 1.5
    assert config.budgets.conversation.daily is None


def test_a_section_may_name_its_platform() -> None:
    text = f"{BOT}[adapters.work]\nplatform = 'telegram'\ntoken = 'u'\nrich = false"
    adapters = read(text).adapters
    assert list(adapters) == ["telegram", "work"]
    assert isinstance(adapters["work"], type(adapters["telegram"]))
    assert read("[adapters.work]\nplatform = 'telegram'\ntoken = 'u'").adapters.keys() == {"work"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "fe80::1%lo", "localhost", "box-1.example.org"])
def test_a_host_is_an_address_or_a_name(host: str) -> None:
    assert read(f"[server]\nhost = '{host}'").server.host == host


@pytest.mark.parametrize(
    "url", ["http://h:1", "http://h:65535/v1", "http://[::1]:8080", "https://h"]
)
def test_an_address_may_have_any_port_that_there_is(url: str) -> None:
    assert read(f"[server]\nbase_url = '{url}'").server.base_url == url


@pytest.mark.parametrize("url", ["https://h.example", "https://h.example/perdure"])
def test_a_slash_at_the_end_of_the_public_address_changes_nothing(url: str) -> None:
    assert read(f"[server]\nbase_url = '{url}/'").server.base_url == url


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("'pure'", "pure"),
        ("{ now = 'pure', 'set_*' = 'once' }", {"now": "pure", "set_*": "once"}),
    ],
)
def test_one_key_says_it_of_all_tools_or_of_some(written: str, meant: object) -> None:
    text = f"[tools.mcp.time]\nurl = 'http://h'\nrepeat = {written}"

    assert read(text).tools.mcp["time"].repeat == meant


def test_the_first_agent_of_the_file_is_the_default() -> None:
    config = read('[agents.zeta]\nkind = "demo"\n[agents.alpha]\nkind = "demo"\n')

    assert list(config.agents) == ["zeta", "alpha"]
    assert config.default_agent == "zeta"


def test_an_unknown_key_names_its_line_and_the_nearest_key() -> None:
    assert complaints('[server]\nhost = "::1"\nprot = 1\n') == [
        'perdure.toml:3: unknown key "prot" in [server]; did you mean "port"?'
    ]


def test_a_key_near_nothing_lists_what_is_valid() -> None:
    (complaint,) = complaints("[drain]\n\ncolour = 1\n")

    assert complaint == 'perdure.toml:3: unknown key "colour" in [drain]; valid keys: timeout_s'


def test_a_configuration_error_is_a_rejection() -> None:
    with pytest.raises(Rejected, match=r"perdure\.toml:1"):
        read("sever = 1")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[servers]\nport = 1", 1, 'did you mean "server"?'),
        ("[mcpServers.time]\ncommand = ['x']", 1, "did you mean [tools.mcp.NAME]?"),
        ("server = 3", 1, "[server] must be a table"),
        ('[server]\nport = "80"', 2, 'from 0 to 65535, not "80"'),
        ("[server]\nport = 65536", 2, "from 0 to 65535, not 65536"),
        ("[server]\nport = -1", 2, "from 0 to 65535"),
        ("[server]\nport = true", 2, "not true"),
        ("[server]\nport = 1979-05-27", 2, "not 1979-05-27"),
        ('[server]\nhost = ""', 2, "not empty"),
        ("[server]\nhost = '256.1.1.1'", 2, 'such as "127.0.0.1" or "::1", or the name of'),
        ("[server]\nhost = '127.0.0.1:80'", 2, "[server] host must be"),
        ("[server]\nhost = 'http://h'", 2, "[server] host must be"),
        ('[server]\nbusy = "que"', 2, 'did you mean "queue"?'),
        ('[server]\nbase_url = "example.org"', 2, "must be an address"),
        ('[server]\nbase_url = "http://"', 2, "must be an address"),
        ('[store]\nurl = "mysql://h/db"', 2, '"sqlite" or an address'),
        ('[store]\nurl = "postgresql://"', 2, '"sqlite" or an address'),
        ('[store]\nurl = "postgresql://h:port/db"', 2, '"sqlite" or an address'),
        ("[drain]\ntimeout_s = -1", 2, "0 or more, not -1"),
        ("[drain]\ntimeout_s = nan", 2, "not nan"),
        ("[drain]\ntimeout_s = inf", 2, "not inf"),
        ("[turns]\ntimeout_s = 0", 2, "above 0"),
        ("[turns]\nconcurrent = 0", 2, "at least 1"),
        ("[turns]\nsteps_max = 1.5", 2, "whole number"),
        ("[recovery]\nresume = 'always'", 2, '"continue", "ask", "wait"'),
        ("[sessions]\ntitles = 1", 2, "true or false"),
        ("[retention]\nclosed_days = -3", 2, "number of days"),
        ("[budgets.person.daily]\ntokens = -1", 2, "[budgets.person.daily] tokens"),
        ("[budgets.persons.daily]\ntokens = 1", 1, 'did you mean "person"?'),
        ("[budgets.person.dayly]\ntokens = 1", 1, 'did you mean "daily"?'),
        ("[agents.main]\nmodel = 'm'", 1, 'needs kind = ...: one of "chat", "acp", "demo"'),
        ("[agents.main]\nkind = 'chatt'", 2, 'did you mean "chat"?'),
        ("[agents.main]\nkind = 'chat'", 1, "[agents.main] needs model"),
        ("[agents.main]\nkind = 'chat'\nmodel = ''", 3, "[agents.main] model"),
        (f"{CHAT}api = 'opnai'", 4, 'did you mean "openai"?'),
        (f"{CHAT}compact_at = 1.1", 4, "at most 1"),
        (f"{CHAT}compact_at = 0", 4, "above 0"),
        (f"{CHAT}context_tokens = -5", 4, "at least 1"),
        (f"{CHAT}base_url = 'localhost:11434'", 4, "must be an address"),
        (f"{CHAT}base_url = 'http://127.0.0.1:99999/v1'", 4, "must be an address"),
        (f"{CHAT}base_url = 'http://127.0.0.1:65536'", 4, "must be an address"),
        (f"{CHAT}base_url = 'http://127.0.0.1:0'", 4, "must be an address"),
        (f"{CHAT}fallbacks = ['mian']", 4, "unknown agent"),
        (f"{CHAT}fallbacks = ['main']", 4, "names the agent itself"),
        (f"{CHAT}compact_agent = 'small'", 4, "unknown agent"),
        (
            f"{CHAT}tools = ['memory',\n'mcp.tiem']\n[tools.mcp.time]\nurl = 'http://h'",
            5,
            "mcp.time",
        ),
        (f"{CHAT}tools = ['memory',\n'sesions']", 5, 'did you mean "sessions"?'),
        (
            f"{CHAT}tools = ['browser']",
            4,
            "valid tools: memory, sessions, todo, files, shell, fetch, search, ask, schedule, send",
        ),
        (f"{CHAT}tools = ['memory',\n'files']", 5, 'names "files", which has no folder; add'),
        (f"{CHAT}[agents.main.approve]\nmemry = 'always'", 5, 'did you mean "memory"?'),
        (
            f"{CHAT}[[agents.main.rules]]\ndo = 'deny'\ntool = 'files.wrte'",
            6,
            'matches no tool: "files.wrte"; did you mean "files.write"?',
        ),
        (
            f"{CHAT}rules = [{{ tool = 'mcp.t.*', do = 'deny', match = '/x' }}]\n{TIME}",
            4,
            'calls of "mcp.t.*" are about no path and no command; leave it out',
        ),
        (f"{CHAT}[[agents.main.rules]]\ndo = 'ask'\ntool = 'mcp.*'", 6, "matches no tool"),
        (
            f"{CHAT}[[agents.main.rules]]\ntool = 'memory'\ndo = 'deny'\nmatch = '/x'",
            7,
            'calls of "memory" are about no path and no command; leave it out',
        ),
        (
            f"{CHAT}[[agents.main.rules]]\ntool = 'fetch'\ndo = 'allow'\nmatch = 'python.org/**'",
            7,
            "addresses begin with http:// or https://",
        ),
        (f"{CHAT}tools = ['search']", 4, 'names "search", which has no engine; add [tools.search]'),
        ("[tools.search]\nkind = 'searxng'", 1, "does not say where the SearXNG server is; add"),
        ("[tools.search]\nkind = 'brave'", 1, "has no key for brave; add api_key"),
        ("[tools.search]\nurl = 'http://h'", 2, "has no effect without kind; add kind ="),
        ("[tools.files]\nroots = ['/a',\n'work']", 3, 'must be a whole path such as "/srv/work"'),
        (f"{CHAT}command = ['x']", 4, 'unknown key "command" in [agents.main]'),
        (f"{CHAT}api_key = ''", 4, "is empty"),
        (f"{CHAT}api_key = {{}}", 4, 'must be text, { env = "NAME" }'),
        (f"{CHAT}api_key = {{ env = 'A', file = 'B' }}", 4, 'must be text, { env = "NAME" }'),
        (f"{CHAT}api_key = {{ evn = 'A' }}", 4, 'not a table of evn; did you mean "env"?'),
        (f"{CHAT}[agents.main.api_key]\nFile = 'A'", 5, 'did you mean "file"?'),
        (f"{CHAT}prices = {{ inptu = 1 }}", 4, 'did you mean "input"?'),
        ("[agents.'a b']\nkind = 'demo'", 1, "must be a name"),
        ("[agents.g]\nkind = 'acp'\ncommand = []", 3, "not an empty list"),
        ("[agents.g]\nkind = 'acp'", 1, "does not say what to start"),
        ("[agents.g]\nkind = 'acp'\npreset = 'gemmini'", 3, "gemini"),
        ("[agents.g]\nkind = 'acp'\npreset = 'qwen'\ncwd = 'work'", 4, "must be a whole path"),
        ("[agents.g]\nkind = 'acp'\npreset = 'qwen'\nroots = ['a']", 4, "must be a whole path"),
        ("[agents.g]\nkind = 'acp'\npreset = 'qwen'\nenv = {'A B' = 'x'}", 4, "A B"),
        ("[agents.g]\nkind = 'demo'\napprove = {permission = 'never'}", 3, "unknown tool"),
        ("[agents.g]\nkind = 'acp'\ncommand = 'gemini'", 3, "must be a list"),
        ("[agents.g]\nkind = 'acp'\ncommand = ['g']\npool.processes = 0", 4, "pool.processes"),
        ("[tools.mcp.time]\napprove = 'never'", 1, "either command or url, and has neither"),
        ("[tools.mcp.t]\ncommand = ['t']\nurl = 'http://h'", 1, "and has both"),
        ("[tools.mcp.t]\nurl = 'http://h'\nrepeat = 'puer'", 3, 'did you mean "pure"?'),
        ("[tools.mcp.t]\nurl = 'http://h'\nrepeat = 7", 3, "not 7"),
        ("[tools.mcp.t]\nurl = 'http://h'\nrepeat.a = 'onec'", 3, 'did you mean "once"?'),
        ("[tools.mcp.'a.b']\nurl = 'http://h'", 1, "must be made of letters, digits"),
        ("[tools.mcp.a__b]\nurl = 'http://h'", 1, "must be made of letters, digits"),
        ("[tools.mcp.a_]\nurl = 'http://h'", 1, "must be made of letters, digits"),
        (f"[tools.mcp.{'a' * 31}]\nurl = 'http://h'", 1, "at most 30"),
        ("[tools.mcp.t]\nurl = 'http://h'\nargs = ['x']", 3, "goes only with command; leave it"),
        ("[tools.mcp.t]\nurl = 'http://h'\nenv.A = 'x'", 3, "goes only with command; leave it"),
        ("[tools.mcp.t]\nurl = 'http://h'\ncwd = '/x'", 3, "goes only with command; leave it"),
        ("[tools.mcp.t]\ncommand = ['t']\nheaders.A = 'x'", 3, "goes only with url; leave it"),
        ("[tools.mcp.t]\ncommand = ['t', '{person}']\nshared = true", 2, "only with shared = f"),
        ("[tools.mcp.t]\nurl = 'http://h'\nheaders.A = 'x {person}'\nshared = true", 3, "shared"),
        ("[tools.mcp.t]\ncommand = ['t']\ncwd = 'x'", 3, 'must be a whole path such as "/srv'),
        ("[tools.mcp.t]\ncommand = ['t']\ntools = ['a',\n'!']", 4, "leaves out nothing; name a"),
        ("[tools.mcp.t]\ncommand = ['t']\nenv = { 'A=B' = 'x' }", 3, "environment variable"),
        ("[tools.mcp.t]\nurl = 'http://h'\nheaders = { 'A B' = 'x' }", 3, "no name of a header"),
        ("[transcriber]\ncommand = ['t', '{file}']\nurl = 'http://h'", 1, "and has both"),
        ("[transcriber]\ncommand = ['whisper']", 2, "must name the file to read"),
        ("[limits]\nmedia_bytes = 0", 2, "at least 1"),
        ("[adapters.telegarm]", 1, 'did you mean "telegram"?'),
        ("[adapters.telegram]\npairing = true", 1, "needs token"),
        ("[adapters.telegram]\ntoken = 't'\nallow = [7]", 3, "allow[0] must be text in quotes"),
        ("[adapters.telegram]\ntoken = 't'\nagent = 'mian'", 3, 'did you mean "main"?'),
        (f"{ROUTE}agent = 'mian'", 3, 'routes.ci.agent names the unknown agent "mian"; did you'),
        (f"{ROUTE}deliver_to = 'telegram:1'", 3, "names the unknown platform"),
        (f"{BOT}{ROUTE}deliver_to = 'telegarm:1'", 5, 'did you mean "telegram"?'),
        (f"{BOT}{ROUTE}deliver_to = 'webhook:ci'", 5, "names the unknown platform"),
        (f"{BOT}{ROUTE}deliver_to = 'telegram:Ada'", 5, 'an address such as "telegram:'),
        (f"{ROUTES}secrets = ['whsec_AAAA']\npreset = 'gitlab'", 2, "must hold 24 to 64 bytes"),
        (f"{ROUTE}callback_secret = 'hunter2'", 3, "routes.ci.callback_secret must hold 24"),
        (f"{ROUTES}secrets = ['{KEY}',\n'whsec_!!!']", 3, "secrets[1] must be whsec_ and then"),
        (f"{ROUTES}secrets = ['short']\npreset = 'github'", 2, "at least 16 characters"),
        (
            f"{ROUTES}secrets = ['long enough as it is']\npreset = 'github'\ncallback = 'http://h'",
            1,
            "callback_secret is needed",
        ),
        (f"{ROUTES}secrets = ['whsec_AAAA']", 2, "must hold 24 to 64 bytes in base64, not 3"),
        (f"{MATRIX}user = '@b:host'", 1, "[adapters.matrix] needs token or password"),
        (f"{MATRIX}token = 't'\nuser = 'bot'", 4, 'such as "@bot:example.org", not "bot"'),
        ("[adapters.work]\ntoken = 't'\nplatform = 'telegarm'", 3, 'did you mean "telegram"?'),
        (f"{BOT}[adapters.slack]\nplatform = 'telegram'\ntoken = 'u'", 3, "adapters.my-telegram"),
        (f"{BOT}[adapters.http]\nplatform = 'telegram'\ntoken = 'u'", 3, "needs another name"),
        (f"{BOT}[adapters.'a:b']\nplatform = 'telegram'\ntoken = 'u'", 3, "needs another name"),
        (f"{BOT}[adapters.b]\nplatform = 'telegram'\ntoken = 't'", 5, "that of [adapters.teleg"),
        (f"{BOT}[[adapters.telegram.places]]\nagent = 'main'", 3, "needs place"),
        (f"{BOT}[[adapters.telegram.places]]\nplace = 'a'\npersona = 'x'", 5, "unknown persona"),
        (f"{BOT}[[adapters.telegram.places]]\nplace = 'a'\nagent = 'x'", 5, "x"),
        ("[adapters.slack]\ntoken = 'xoxb-1'", 1, "[adapters.slack] needs a way to get events"),
        ("[adapters.slack]\ntoken = 'xapp-1'\napp_token = 'xapp-2'", 2, "not begin with xapp-"),
        ("[adapters.slack]\ntoken = 'xoxb-1'\napp_token = 'xoxb-2'", 3, "not begin with xoxb-"),
    ],
)
def test_an_unusable_value_names_its_line_and_the_rule(text: str, line: int, said: str) -> None:
    (complaint,) = complaints(text)

    assert complaint.startswith(f"perdure.toml:{line}: ")
    assert said in complaint


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    found = complaints(
        '[drain]\ntimeout = 3\n[server]\nport = "x"\nbusy = 1\n[turns]\nstps_max = 1\n'
    )

    assert [complaint.split(":")[1] for complaint in found] == ["2", "4", "5", "7"]


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        (
            "[server]\nhost = localhost",
            "perdure.toml:2: not valid TOML at column 8",
            "needs quotes",
        ),
        ('[server]\nhost = "x\n', "perdure.toml:2: ", "the quote it began with"),
        ("[server\nport = 1", "perdure.toml:1: ", "end the section's name with ]"),
        ("a = [1,\n2\n", "perdure.toml:2: ", "end the list with ]"),
        ("[drain]\n[server]\n[drain]\n", "perdure.toml:3: ", "written twice"),
        ("\nport 8080", "perdure.toml:2: ", "key = value"),
    ],
)
def test_malformed_toml_names_its_place_with_a_hint(text: str, place: str, hint: str) -> None:
    (complaint,) = complaints(text)

    assert complaint.startswith(place)
    assert hint in complaint


def test_text_that_is_not_utf8_names_the_line() -> None:
    with pytest.raises(ConfigError, match=r"perdure\.toml:2: .*UTF-8"):
        parse(b"[server]\nhost = '\xff'", Path("perdure.toml"), {})


def test_a_byte_order_mark_and_windows_lines_are_fine() -> None:
    config = parse(b"\xef\xbb\xbf[server]\r\nport = 1\r\n", Path("perdure.toml"), {})

    assert config.server.port == 1


def test_an_unreadable_file_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").mkdir()

    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, {})


HARD = r"""
# [not.a.table]
top = '''
[server]
port = 1 '''
[a."b.c".d] # [x]
key = "]" # x = 1
lit = 'C:\[x]\'
date = 1979-05-27 07:32:00
'quo ted' = '''
five'''''
"\u0041" = "\"]"
dot . ted = { p = 1, "q=r" = [ { s = 2 }, { t = "}" } ], u.v = 3 }
list = [
  1, # , ]
  [ 2,
    3 ],
  "]",
  { w = 4 },
]
[[rows]]
x = 1
[rows.sub]
y = 2
[[rows]]

x = 3
[a]
last = true
""".removeprefix("\n")


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("a",), 27),
        (("a", "b.c", "d"), 5),
        (("a", "b.c", "d", "key"), 6),
        (("a", "b.c", "d", "lit"), 7),
        (("a", "b.c", "d", "date"), 8),
        (("a", "b.c", "d", "quo ted"), 9),
        (("a", "b.c", "d", "A"), 11),
        (("a", "b.c", "d", "dot", "ted", "q=r", 1, "t"), 12),
        (("a", "b.c", "d", "dot", "ted", "u", "v"), 12),
        (("a", "b.c", "d", "list"), 13),
        (("a", "b.c", "d", "list", 0), 14),
        (("a", "b.c", "d", "list", 1, 1), 16),
        (("a", "b.c", "d", "list", 2), 17),
        (("a", "b.c", "d", "list", 3, "w"), 18),
        (("rows", 0, "x"), 21),
        (("rows", 0, "sub", "y"), 23),
        (("rows", 1, "x"), 26),
        (("a", "last"), 28),
        (("a", "missing", "deep"), 27),
        (("nowhere",), 1),
    ],
)
def test_lines_are_found_in_awkward_files(path: tuple[str | int, ...], line: int) -> None:
    assert Positions(HARD).line(path) == line


def test_a_secret_never_shows_itself() -> None:
    secret = Secret("hunter2")

    config = Config(store=StoreConfig(url=secret))
    shown = f"{secret} {secret!r} {[secret]} {config} {config!r}"
    assert "hunter2" not in shown
    assert secret.reveal() == "hunter2"
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)
    with pytest.raises(TypeError):
        json.dumps(secret)
    with pytest.raises(TypeError, match="not serialised"):
        pickle.dumps(secret)


@pytest.mark.parametrize(
    "text",
    [
        f"{CHAT}api_key = ['hunter2']",
        f"{CHAT}api_key = {{ value = 'hunter2' }}",
        f"{CHAT}headers = 'hunter2'",
        f"{CHAT}headers = {{ A = {{ nev = 'hunter2' }} }}",
        f"{CHAT}apikey = 'hunter2'",
        f"{CHAT}base_url = 'htp://me:hunter2@host'",
        "[store]\nurl = 'postgres://me:hunter2@host/db'",
        "[adapters.telegram]\ntoken = true\nsecret = 'hunter2'",
        f"{ROUTES}secrets = ['hunter2']",
    ],
)
def test_complaints_never_repeat_a_secret(text: str) -> None:
    assert "hunter2" not in "".join(complaints(text))


def test_a_missing_variable_is_named_with_the_line() -> None:
    text = f"{CHAT}\napi_key = {{ env = 'OPENAI_API_KEY' }}"

    for complaint in (*complaints(text), *complaints(text, OPENAI_API_KEY="")):
        assert complaint.startswith("perdure.toml:5: [agents.main] api_key")
        assert complaint.endswith("set OPENAI_API_KEY before the start")


def test_a_secret_file_is_read_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("  sk-2\r\n")
    config = read(f"{CHAT}api_key = {{ file = 'key' }}", home=tmp_path)

    agent = config.agents["main"]
    assert isinstance(agent, ChatAgentSection)
    assert agent.api_key == Secret("  sk-2")


def test_a_missing_or_empty_secret_file_is_named(tmp_path: Path) -> None:
    text = f"{CHAT}api_key = {{ file = 'key' }}"
    with pytest.raises(ConfigError, match=r"perdure\.toml:4: .*/key, which cannot be read"):
        read(text, home=tmp_path)

    (tmp_path / "key").write_text("\n")
    with pytest.raises(ConfigError, match="which is empty; put the secret into"):
        read(text, home=tmp_path)


def test_reload_takes_a_valid_change_and_keeps_the_same_meaning(tmp_path: Path) -> None:
    path = tmp_path / "perdure.toml"
    path.write_text("[server]\nport = 1\n")
    first = load(tmp_path, {})

    path.write_text("# a comment\n[server]\nport = 1\n")
    assert reload(first, path, {}) is first

    path.write_text("[server]\nport = 2\n")
    changed = reload(first, path, {})
    assert isinstance(changed, Config)
    assert changed.server.port == 2
    assert restart_keys(first, changed) == ("[server]",)
    assert restart_keys(first, first) == ()


def test_reload_sees_a_new_default_agent(tmp_path: Path) -> None:
    one, two = '[agents.one]\nkind = "demo"\n', '[agents.two]\nkind = "demo"\n'
    path = tmp_path / "perdure.toml"
    path.write_text(one + two)
    first = load(tmp_path, {})

    path.write_text(two + one)
    changed = reload(first, path, {})

    assert isinstance(changed, Config)
    assert changed.default_agent == "two"


@pytest.mark.parametrize("content", [b"[server]\nprot = 2\n", b"[server\n", b"\xff", None])
def test_reload_never_replaces_a_valid_configuration(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "perdure.toml"
    path.write_text("[server]\nport = 1\n")
    first = load(tmp_path, {})

    path.unlink()
    if content is not None:
        path.write_bytes(content)
    problems = reload(first, path, {})

    assert not isinstance(problems, Config)
    assert [problem.file for problem in problems] == [str(path)]


def test_reload_without_any_file_stays_with_the_defaults(tmp_path: Path) -> None:
    first = load(tmp_path, {})

    assert reload(first, tmp_path / "perdure.toml", {}) is first


def test_the_home_option_beats_the_variable_beats_the_default(tmp_path: Path) -> None:
    environ = {"PERDURE_HOME": "~/elsewhere", "HOME": str(tmp_path)}

    assert home_folder(Path("/opt/p"), environ) == Path("/opt/p")
    assert home_folder(None, environ) == tmp_path / "elsewhere"
    assert home_folder(None, {"HOME": str(tmp_path)}) == tmp_path / ".perdure"
    assert home_folder(None, {"HOME": str(tmp_path), "PERDURE_HOME": ""}) == tmp_path / ".perdure"
    assert home_folder(Path("here"), environ).is_absolute()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_home_is_made_for_one_user(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"
    prepare_home(home)
    prepare_home(home)

    assert [mode(each) for each in (home, home / "media", home / "logs")] == [0o700] * 3


def test_an_open_home_is_closed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    (home / "perdure.toml").touch()
    prepare_home(home)

    assert mode(home) == 0o700


def test_a_folder_shared_with_others_is_refused_and_left_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "theirs").mkdir(parents=True)
    shared.chmod(0o755)

    with pytest.raises(ConfigError, match="chmod 700"):
        prepare_home(shared)
    assert mode(shared) == 0o755
    assert [each.name for each in shared.iterdir()] == ["theirs"]


def test_a_home_that_is_a_file_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "home").touch()

    with pytest.raises(ConfigError, match="PERDURE_HOME"):
        prepare_home(tmp_path / "home")


def test_the_token_is_made_once_and_kept(tmp_path: Path) -> None:
    first = home_token(tmp_path, {}, os.urandom)

    assert len(first) == 43
    assert home_token(tmp_path, {}, os.urandom) == first
    assert mode(tmp_path / "token") == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["token"]


def test_the_variable_beats_the_token_file(tmp_path: Path) -> None:
    assert home_token(tmp_path, {"PERDURE_TOKEN": "chosen-one"}, os.urandom) == "chosen-one"
    assert not (tmp_path / "token").exists()


def test_an_open_token_file_is_closed(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("mine-alone\n")
    (tmp_path / "token").chmod(0o644)

    assert home_token(tmp_path, {"PERDURE_TOKEN": " "}, os.urandom) == "mine-alone"
    assert mode(tmp_path / "token") == 0o600


def test_an_empty_token_file_never_means_an_empty_token(tmp_path: Path) -> None:
    (tmp_path / "token").touch()

    assert len(home_token(tmp_path, {}, os.urandom)) == 43
    assert (tmp_path / "token").stat().st_size > 0


@pytest.mark.parametrize("content", ["\n", "two words", "caf\u00e9"])
def test_a_token_that_cannot_travel_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)

    with pytest.raises(ConfigError, match="no usable token"):
        home_token(tmp_path, {}, os.urandom)


@pytest.mark.parametrize("token", ["a", "short-1", "aaaaaaaaaaaaaaaa"])
def test_a_token_that_could_be_guessed_is_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(ConfigError, match="too short") as refused:
        home_token(tmp_path, {"PERDURE_TOKEN": token}, os.urandom)
    assert "aaa" not in str(refused.value)


def test_first_starts_at_once_agree_on_the_token(tmp_path: Path) -> None:
    gate = threading.Barrier(8)
    tokens: list[str] = []

    def slow_entropy(count: int) -> bytes:
        if count == 32:
            gate.wait(10)
        return os.urandom(count)

    def start() -> None:
        tokens.append(home_token(tmp_path, {}, slow_entropy))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(tokens) == 8
    assert set(tokens) == {(tmp_path / "token").read_text().strip()}


def test_a_token_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    script = (
        "import os, resource, sys\n"
        "from pathlib import Path\n"
        "from perdure.app.config.environment import home_token\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "home_token(Path(sys.argv[1]), {}, os.urandom)\n"
    )
    command = [sys.executable, "-B", "-c", script, str(tmp_path)]
    failed = subprocess.run(command, check=False, capture_output=True, text=True)

    assert "the token cannot be read or made (File too large)" in failed.stderr
    assert list(tmp_path.iterdir()) == []
    assert len(home_token(tmp_path, {}, os.urandom)) == 43


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}], ids=["unset", "empty"])
def test_a_user_without_a_home_is_asked_to_name_one(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    # A container may run the gateway under a user id that has no entry in the list of users.
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    with pytest.raises(ConfigError, match=r"HOME: is not set, .* --home or PERDURE_HOME"):
        home_folder(None, environ)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('trusted_proxies = ["10.0.0.0/8", "proxy"]', "trusted_proxies[1] must be an address"),
        ('hosts = ["https://chat.example"]', "hosts[0] must be a name"),
    ],
)
def test_proxies_are_networks_and_hosts_are_names(line: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(f"[server]\n{line}\n".encode(), Path("perdure.toml"), {})
    assert words in str(refused.value)


RULES = """
[[agents.main.rules]]
tool = "{tool}"
match = "/srv/**"
do = "deny"
[tools.files]
roots = ["/srv"]
[tools.mcp.time]
url = "http://h"
"""


@pytest.mark.parametrize("tool", ["files", "files.*", "*", "file?.edit"])
def test_a_rule_that_may_match_is_taken(tool: str) -> None:
    (rule,) = read(CHAT + RULES.format(tool=tool)).agents["main"].rules
    assert (rule.tool, rule.do, rule.match) == (tool, "deny", "/srv/**")


def test_the_names_that_rules_may_use_are_those_of_the_tools(tmp_path: Path) -> None:
    names = {name for each in FilesTool([tmp_path]).kinds() for name in each.names}
    assert names == {FILES, *FILE_ACTS}


SHELL_RULE = """
tools = ["shell"]
[[agents.main.rules]]
tool = "{tool}"
match = "git status*"
do = "allow"
[tools.shell]
roots = ["/srv"]
"""


@pytest.mark.parametrize("tool", ["shell", "shell.run", "shell.*", "sh*"])
def test_a_rule_may_match_the_words_of_a_command(tool: str) -> None:
    (rule,) = read(CHAT + SHELL_RULE.format(tool=tool)).agents["main"].rules
    assert (rule.tool, rule.match) == (tool, "git status*")


def test_a_rule_that_matches_no_command_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r'calls of "shell\.log" are about no path and no command'
    ):
        read(CHAT + SHELL_RULE.format(tool="shell.log"))


def test_the_names_that_rules_may_use_are_those_of_shell_too(tmp_path: Path) -> None:
    settings = ShellSettings(roots=(tmp_path,))
    tool = ShellTool(settings, LaunchedChildren(), ShellJobs())
    names = {name for each in tool.kinds() for name in each.names}
    assert names == {SHELL, *SHELL_ACTS}


@pytest.mark.parametrize("where", ["same", "above", "below", "link"])
def test_commands_never_reach_the_home(tmp_path: Path, where: str) -> None:
    home, apart = tmp_path / "home", tmp_path / "apart"
    (home / "deep").mkdir(parents=True)
    apart.mkdir()
    (tmp_path / "link").symlink_to(home)
    places = {"same": home, "above": tmp_path, "below": home / "deep", "link": tmp_path / "link"}
    path = home / "perdure.toml"
    path.write_text(f"[tools.shell]\nroots = ['{places[where]}']\n")
    with pytest.raises(ConfigError, match=r":2: .*would reach the gateway's home"):
        check_folders(read(path.read_text(), home=home), path)
    path.write_text(f"[tools.shell]\nroots = ['{apart}']\n")
    check_folders(read(path.read_text(), home=home), path)


AGENT = "[agents.a]\nkind = 'acp'\ncommand = ['x']\n"


@pytest.mark.parametrize("key", ["roots", "cwd"])
def test_an_agent_in_its_sandbox_never_reaches_the_home(tmp_path: Path, key: str) -> None:
    home, apart = tmp_path / "home", tmp_path / "apart"
    home.mkdir()
    path = home / "perdure.toml"

    def check(folder: Path, more: str = "") -> None:
        value = f"['{folder}']" if key == "roots" else f"'{folder}'"
        path.write_text(f"{AGENT}{key} = {value}\n{more}")
        check_folders(read(path.read_text(), home=home), path)

    for around in (home, tmp_path):
        with pytest.raises(ConfigError, match=r":4: .*the agent would reach the gateway's home"):
            check(around)
    check(apart)
    check(home / "agents" / "a" / "login")
    check(tmp_path, "sandbox = 'off'\n")


def test_a_home_among_the_folders_of_the_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, apart = tmp_path / "usr" / "home", tmp_path / "apart"
    home.mkdir(parents=True)
    apart.mkdir()
    monkeypatch.setattr(sandbox, "SYSTEM_FOLDERS", (str(tmp_path / "usr"),))
    path = home / "perdure.toml"
    path.write_text(f"[tools.shell]\nroots = ['{apart}']\n")
    with pytest.raises(ConfigError, match="commands can read the gateway's home"):
        check_folders(read(path.read_text(), home=home), path)
    path.write_text(AGENT)
    with pytest.raises(ConfigError, match=r":1: .*the agent can read the gateway's home"):
        check_folders(read(path.read_text(), home=home), path)


@pytest.mark.parametrize("match", ["https://docs.python.org/**", "http*://h/**", "**/private/**"])
def test_a_rule_about_an_address_is_taken(match: str) -> None:
    rule = f"[[agents.main.rules]]\ntool = 'fetch'\nmatch = '{match}'\ndo = 'allow'"
    (taken,) = read(f"{CHAT}tools = ['fetch']\n{rule}").agents["main"].rules
    assert (taken.tool, taken.match) == ("fetch", match)


def test_a_folder_that_cannot_be_used_is_named_with_its_line(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "file"
    inner = home / "inner"
    inner.mkdir(parents=True)
    file.touch()
    roots = [home, tmp_path / "nowhere", file, inner]
    listed = ",\n".join(f'"{each}"' for each in roots)
    text = f"[tools.files]\nroots = [\n{listed}]\n"
    path = tmp_path / "perdure.toml"
    path.write_text(text)
    config = read(text, home=tmp_path)

    with pytest.raises(ConfigError) as caught:
        check_folders(config, path)

    said = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in said] == [f"{path}:{line}" for line in (4, 5, 6)]
    assert "create the folder, or name another one" in said[0]
    assert "is not a folder" in said[1]
    assert "overlap" in said[2]
    check_folders(read(f"[tools.files]\nroots = ['{home}']", home=tmp_path), path)


def test_settings_of_tools_need_no_restart_except_the_wait() -> None:
    before = read(f"{CHAT}")
    live = read(f"{CHAT}[tools.memory]\napprove = 'once'\n[tools.files]\nroots = ['/srv']")
    waits = read(f"{CHAT}[tools]\nanswer_wait_s = 5")
    assert restart_keys(before, live) == ()
    assert restart_keys(before, waits) == ("[tools] answer_wait_s",)


def test_each_section_of_one_platform_has_its_own_folder_and_hook(tmp_path: Path) -> None:
    sections = "[adapters.{}]\nplatform = 'slack'\ntoken = 'xoxb-{}'\napp_token = 'xapp-{}'\n"
    config = read("".join(sections.format(name, name, name) for name in ("slack", "work")))
    hooks: list[str] = []

    def hook_url(name: str) -> str:
        hooks.append(name)
        return f"https://gateway.example/hooks/{name}"

    made = platforms(
        config.adapters,
        home=tmp_path,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        hook_url=hook_url,
        answers=lambda _: no_answers,
    )
    assert [(name, made[name].name) for name in made] == [("slack", "slack"), ("work", "work")]
    assert hooks == ["slack", "work"]
    assert sorted(path.name for path in (tmp_path / "adapters").iterdir()) == ["slack", "work"]
