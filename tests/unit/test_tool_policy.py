"""Checks the one decision about tool calls: every combination of rule, configuration, permission
and grant, and that nothing hides a command behind another one."""

import time
from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.ids import GrantId, SessionId
from perdure.domain.journal.question_events import GrantOffer
from perdure.domain.outcomes import Repeat
from perdure.domain.tools.globs import is_match
from perdure.domain.tools.grants import (
    Grant,
    Scope,
    covers,
)
from perdure.domain.tools.policy import (
    Approve,
    Decision,
    Do,
    Rule,
    ToolPolicy,
    decision_about,
    default_for,
    offered,
    starts_others,
)
from perdure.domain.tools.traits import CallTraits, Outlook, Permission, canonical, frozen_digest

HERE, ELSEWHERE = SessionId("ses_here"), SessionId("ses_elsewhere")
NOW_MS = 1_000_000
MAIL = CallTraits(
    names=("mail",), repeat=Repeat.REPEATABLE, permission=Permission.ACT, definition="v1"
)
ANY_MAIL = GrantOffer(agent="main", act="mail", definition="v1")


def traits_of(permission: Permission) -> CallTraits:
    return msgspec.structs.replace(MAIL, permission=permission)


def command(*argv: str) -> CallTraits:
    return CallTraits(
        names=("shell", "shell.run"),
        repeat=Repeat.ONCE,
        permission=Permission.ACT,
        definition="v1",
        argv=argv,
    )


def file_call(path: str, act: str = "files.write") -> CallTraits:
    return CallTraits(
        names=("files", act),
        repeat=Repeat.REPEATABLE,
        permission=Permission.ACT,
        definition="v1",
        paths=(path, path.removeprefix("/home/")),
    )


def granted(offer: GrantOffer | None, scope: Scope = Scope.FOREVER, **more: object) -> Grant:
    assert offer is not None
    return msgspec.convert(
        {"id": "grt_1", "offer": msgspec.to_builtins(offer), "scope": scope, **more}, Grant
    )


def decided(
    traits: CallTraits,
    policy: ToolPolicy | None = None,
    *grants: Grant,
    arguments: str = "{}",
    session: SessionId = HERE,
    now_ms: int = NOW_MS,
) -> Decision:
    policy = policy or ToolPolicy(agent="main")
    return decision_about(
        traits, policy, grants, arguments=arguments, session=session, now_ms=now_ms
    )


# The table.


def expected(
    rule: Do | None, approve: Approve | None, permission: Permission, *, has_grant: bool
) -> Do:
    """Return what must happen, written as a person would explain it."""
    if rule in (Do.DENY, Do.ALLOW):
        return rule
    usually_asked = permission is Permission.ACT
    must_ask = approve is not Approve.NEVER if approve is not None else usually_asked
    if rule is None and not must_ask:
        return Do.ALLOW
    return Do.ALLOW if has_grant else Do.ASK


TABLE = list(product([None, *Do], [None, *Approve], Permission, [False, True]))


@pytest.mark.parametrize(("rule", "approve", "permission", "has_grant"), TABLE)
def test_every_combination_has_the_verdict_that_its_words_say(
    rule: Do | None, approve: Approve | None, permission: Permission, has_grant: bool
) -> None:
    policy = ToolPolicy(
        agent="main",
        approve={} if approve is None else {"mail": approve},
        rules=() if rule is None else (Rule(tool="mail", do=rule),),
    )
    grants = [granted(ANY_MAIL)] if has_grant else []

    found = decided(traits_of(permission), policy, *grants)

    assert found.do is expected(rule, approve, permission, has_grant=has_grant)
    assert found.why, "the journal says why a call ran"
    if found.do is Do.ASK:
        assert found.offer is not None
        assert found.is_once is (rule is None and approve is Approve.ONCE)
    if has_grant and found.do is Do.ALLOW and rule is not Do.ALLOW:
        is_needed = expected(rule, approve, permission, has_grant=False) is Do.ASK
        assert found.why == ("grt_1" if is_needed else "policy")
    assert default_for(traits_of(permission), policy) is expected(
        rule, approve, permission, has_grant=False
    )


def test_where_nothing_is_configured_only_what_acts_is_asked_about() -> None:
    verdicts = {each: decided(traits_of(each)).do for each in Permission}

    assert verdicts == {
        Permission.OWN: Do.ALLOW,
        Permission.READ: Do.ALLOW,
        Permission.ACT: Do.ASK,
    }


# Rules.


@pytest.mark.parametrize("place", range(4))
def test_a_denial_wins_wherever_it_stands(place: int) -> None:
    rules = [Rule(tool="mail", do=Do.ALLOW), Rule(tool="*", do=Do.ASK), Rule(tool="m*", do=Do.ASK)]
    rules.insert(place, Rule(tool="mail", do=Do.DENY))
    policy = ToolPolicy(agent="main", rules=tuple(rules), approve={"mail": Approve.NEVER})

    assert decided(MAIL, policy, granted(ANY_MAIL)).do is Do.DENY


@pytest.mark.parametrize(("first", "second"), [(Do.ALLOW, Do.ASK), (Do.ASK, Do.ALLOW)])
def test_of_the_other_rules_the_first_that_matches_decides(first: Do, second: Do) -> None:
    rules = (
        Rule(tool="other", do=Do.DENY),
        Rule(tool="mail", do=first),
        Rule(tool="mail", do=second),
    )

    assert decided(MAIL, ToolPolicy(agent="main", rules=rules)).do is first


def test_a_rule_asks_about_what_is_usually_not_asked_about() -> None:
    policy = ToolPolicy(agent="main", rules=(Rule(tool="mail", do=Do.ASK),))

    assert decided(traits_of(Permission.OWN), policy).do is Do.ASK


@pytest.mark.parametrize(
    ("tool", "act", "is_meant"),
    [
        ("files", "files.write", True),
        ("files.write", "files.write", True),
        ("files.write", "files.read", False),
        ("files.*", "files.read", True),
        ("file", "files.read", False),
        ("FILES", "files.read", False),
        ("*", "files.read", True),
        ("f?les", "files.read", True),
    ],
)
def test_a_rule_names_a_tool_or_what_it_does(tool: str, act: str, is_meant: bool) -> None:
    policy = ToolPolicy(agent="main", rules=(Rule(tool=tool, do=Do.DENY),))

    assert (decided(file_call("/home/a.txt", act), policy).do is Do.DENY) is is_meant


@pytest.mark.parametrize(
    ("glob", "path", "is_meant"),
    [
        ("/home/*", "/home/a.txt", True),
        ("/home/*", "/home/deep/a.txt", False),
        ("/home/**", "/home/deep/a.txt", True),
        ("**/.env", "/home/deep/.env", True),
        ("**/.env", "/home/deep/.env.old", False),
        ("/home/a.tx?", "/home/a.txt", True),
        ("/home?a.txt", "/home/a.txt", False),
        ("/home/a.txt", "/home/a.txt", True),
        ("/home/a", "/home/a.txt", False),
        ("*", "/home/a.txt", True),
        ("*", "/home/deep/a.txt", False),
        ("deep/*", "/home/deep/a.txt", True),
        ("home/*", "/home/a.txt", False),
        ("**", "/home/a.txt", True),
    ],
)
def test_a_rule_may_name_paths(glob: str, path: str, is_meant: bool) -> None:
    policy = ToolPolicy(agent="main", rules=(Rule(tool="files", do=Do.DENY, match=glob),))

    assert (decided(file_call(path), policy).do is Do.DENY) is is_meant


@pytest.mark.parametrize(
    ("glob", "argv", "is_meant"),
    [
        ("git status", ("git", "status"), True),
        ("git *", ("git", "push"), True),
        ("git *", ("git", "push", "origin"), True),
        ("git *", ("git",), False),
        ("git *", ("gitk", "x"), False),
        ("sudo **", ("sudo", "rm"), True),
        ("sudo **", ("/usr/bin/sudo", "rm"), True),
        ("rm **", ("/bin/rm", "-rf", "/"), True),
        ("/bin/rm **", ("rm", "-rf"), False),
    ],
)
def test_a_denial_may_name_commands_by_their_program_wherever_it_is(
    glob: str, argv: tuple[str, ...], is_meant: bool
) -> None:
    policy = ToolPolicy(agent="main", rules=(Rule(tool="shell", do=Do.DENY, match=glob),))

    assert (decided(command(*argv), policy).do is Do.DENY) is is_meant


@pytest.mark.parametrize(
    ("glob", "argv", "is_meant"),
    [
        ("git status*", ("git", "status", "-s"), True),
        ("/usr/bin/git *", ("/usr/bin/git", "log"), True),
        ("git status*", ("/srv/garden/git", "status"), False),
        ("git status*", ("./git", "status"), False),
        ("git *", ("git", "log", "--format=$(id)"), False),
        ("git *", ("sh", "-c", "git log"), False),
    ],
)
def test_a_rule_that_allows_a_program_means_the_one_on_the_search_path(
    glob: str, argv: tuple[str, ...], is_meant: bool
) -> None:
    policy = ToolPolicy(agent="main", rules=(Rule(tool="shell", do=Do.ALLOW, match=glob),))

    assert (decided(command(*argv), policy).do is Do.ALLOW) is is_meant


@pytest.mark.parametrize(
    ("glob", "argv", "is_meant"),
    [
        ("cat notes/**", ("cat", "notes/../../etc/passwd"), False),
        ("cat notes/**", ("cat", "notes/a", "../secret"), False),
        ("cat notes/**", ("cat", "notes/.."), False),
        ("cat notes/**", ("cat", "notes/deep/..", "x"), False),
        ("git **", ("git", "-C../other", "log"), False),
        ("make **", ("make", "--directory=../other"), False),
        ("cat notes/**", ("cat", "notes/a..b"), True),
        ("cat notes/**", ("cat", "notes/..hidden"), True),
        ("git log **", ("git", "log", "v1..v2"), True),
        ("go test **", ("go", "test", "./..."), True),
    ],
)
def test_a_rule_that_allows_a_folder_covers_no_path_that_leads_upwards_again(
    glob: str, argv: tuple[str, ...], is_meant: bool
) -> None:
    allowing = ToolPolicy(agent="main", rules=(Rule(tool="shell", do=Do.ALLOW, match=glob),))
    denying = ToolPolicy(agent="main", rules=(Rule(tool="shell", do=Do.DENY, match=glob),))

    assert (decided(command(*argv), allowing).do is Do.ALLOW) is is_meant
    assert decided(command(*argv), denying).do is Do.DENY, "a denial covers it, wherever it leads"


@pytest.mark.parametrize("path", ["/home/notes/../key", "/home/notes/.."])
def test_no_path_of_any_tool_leads_upwards_from_what_a_rule_allows(path: str) -> None:
    rule = Rule(tool="files", do=Do.ALLOW, match="**/notes/**")

    assert decided(file_call(path), ToolPolicy(agent="main", rules=(rule,))).do is Do.ASK


def test_a_rule_with_a_match_says_nothing_of_calls_without_path_and_command() -> None:
    policy = ToolPolicy(agent="main", rules=(Rule(tool="mail", do=Do.ALLOW, match="**"),))

    assert decided(MAIL, policy).do is Do.ASK


# Commands behind commands.


HIDDEN = [
    ("sh", "-c", "ls"),
    ("/bin/sh", "-c", "ls"),
    ("bash", "x.sh"),
    ("zsh", "-lc", "ls"),
    ("BASH", "-c", "ls"),
    ("env", "ls"),
    ("/usr/bin/env", "FOO=1", "ls"),
    ("python3", "-c", "print"),
    ("python3.11", "x.py"),
    ("perl5.36", "-e", "1"),
    ("xargs", "rm"),
    ("sudo", "ls"),
    ("timeout", "5", "ls"),
    ("nohup", "ls"),
    ("ssh", "host", "ls"),
    ("FOO=1", "ls"),
    ("LD_PRELOAD=/tmp/x.so", "ls"),
    ("BASH_ENV=/tmp/x", "ls"),
    ("ls", "a;rm", "b"),
    ("ls", "$(rm b)"),
    ("ls", "`rm b`"),
    ("ls", "a|b"),
    ("ls", "a", ">", "b"),
    ("ls", "a\nrm b"),
    ("ls", "${IFS}"),
    ("ls", "*"),
    ("ls", "'a'"),
    ("ls", "a\\b"),
    ("ls", "&&", "rm"),
    ("ls;rm",),
    ("zsh-5.8", "-c", "ls"),
    ("/usr/local/bin/python3-3.11", "x.py"),
    ("bash.exe", "-c", "ls"),
    ("strace", "ls"),
    ("npx", "left-pad"),
    ("awk", "-f", "x.awk"),
    ("made-up-wrapper", "--", "bash", "x.sh"),
    ("made-up-wrapper", "/usr/bin/python3", "x.py"),
    ("find", ".", "-name", "x", "-exec", "rm", "+"),
    ("find", ".", "-okdir", "rm", "+"),
    ("tar", "-xf", "x.tar", "--to-command=rm"),
    ("tar", "-cf", "x.tar", "--checkpoint-action=exec=rm", "."),
    ("rsync", "--rsh=rm", "a", "b"),
]


@pytest.mark.parametrize("argv", HIDDEN, ids=" ".join)
def test_no_grant_and_no_rule_reaches_a_command_behind_another(argv: tuple[str, ...]) -> None:
    traits = command(*argv)
    as_if = GrantOffer(agent="main", act="shell", definition="v1")
    allowing = ToolPolicy(agent="main", rules=(Rule(tool="**", do=Do.ALLOW),))
    matching = ToolPolicy(agent="main", rules=(Rule(tool="shell", do=Do.ALLOW, match="**"),))

    assert starts_others(argv)
    assert offered(traits, "main", "{}") is None
    assert offered(traits, "main", "{}", is_any=True) is None
    for policy in (None, allowing, matching):
        found = decided(traits, policy, granted(as_if))
        assert (found.do, found.offer) == (Do.ASK, None)
    denying = ToolPolicy(agent="main", rules=(Rule(tool="shell", do=Do.DENY),))
    assert decided(traits, denying).do is Do.DENY


@pytest.mark.parametrize(
    "argv", [("ls", "-la"), ("git", "status"), ("/usr/bin/git", "diff"), ("make", "a=b"), ()]
)
def test_a_plain_command_may_be_granted(argv: tuple[str, ...]) -> None:
    assert not starts_others(argv)
    assert offered(command(*argv), "main", "{}") is not None


@given(st.lists(st.text(max_size=8), max_size=4), st.sampled_from(["sh", "env", "a=b", "x;y"]))
def test_whatever_follows_a_hidden_command_stays_hidden(rest: list[str], name: str) -> None:
    assert starts_others([name, *rest])


@pytest.mark.parametrize("argv", [("env", "sudo", "ls"), ("sh", "-c", "sudo ls")], ids=" ".join)
def test_what_may_hide_a_denied_command_is_asked_about_also_where_nobody_is_asked(
    argv: tuple[str, ...],
) -> None:
    denial = Rule(tool="shell", do=Do.DENY, match="sudo **")
    other = Rule(tool="files", do=Do.DENY, match="sudo **")
    approve = {"shell": Approve.NEVER}

    def decision(*rules: Rule) -> Do:
        policy = ToolPolicy(agent="main", approve=approve, rules=rules)
        return decided(command(*argv), policy).do

    assert decision(denial) is Do.ASK
    assert decision(other) is Do.ALLOW
    assert decision() is Do.ALLOW


@pytest.mark.parametrize(
    ("do", "found"), [(Do.ALLOW, Do.ASK), (Do.ASK, Do.ASK), (Do.DENY, Do.DENY)]
)
def test_what_is_too_long_to_be_compared_is_never_allowed(do: Do, found: Do) -> None:
    long = command("ls", *["a" * 1_000] * 1_000)
    rule = Rule(tool="shell", do=do, match="*a" * 50)
    policy = ToolPolicy(agent="main", approve={"shell": Approve.ALWAYS}, rules=(rule,))
    began = time.thread_time()

    assert decided(long, policy).do is found
    assert time.thread_time() - began < 1


# Grants.


def test_a_grant_for_a_command_covers_exactly_this_command() -> None:
    grant = granted(offered(command("git", "push"), "main", "{}"))

    assert decided(command("git", "push"), None, grant).do is Do.ALLOW
    assert decided(command("git", "push"), None, grant).why == grant.id
    for other in (("git",), ("git", "push", "-f"), ("git push",), ("/usr/bin/git", "push")):
        assert decided(command(*other), None, grant).do is Do.ASK


def test_a_grant_for_a_command_covers_it_in_its_folder_and_with_its_input() -> None:
    there = '{"argv": ["make"], "cwd": "a"}'
    grant = granted(offered(command("make"), "main", there))

    assert decided(command("make"), None, grant, arguments=there).do is Do.ALLOW
    for other in ('{"argv": ["make"], "cwd": "b"}', '{"argv": ["make"], "cwd": "a", "input": "x"}'):
        assert decided(command("make"), None, grant, arguments=other).do is Do.ASK


def test_a_grant_for_a_file_covers_this_act_on_this_file() -> None:
    grant = granted(offered(file_call("/home/a.txt"), "main", "{}"))

    assert decided(file_call("/home/a.txt"), None, grant).do is Do.ALLOW
    assert decided(file_call("/home/b.txt"), None, grant).do is Do.ASK
    assert decided(file_call("/home/a.txt", "files.delete"), None, grant).do is Do.ASK


def test_a_grant_for_a_page_covers_its_site_and_no_other() -> None:
    def page(site: str, path: str) -> CallTraits:
        return CallTraits(
            names=("fetch",),
            repeat=Repeat.REPEATABLE,
            permission=Permission.ACT,
            definition="v1",
            paths=(site + path,),
            site=site,
        )

    offer = offered(page("https://docs.python.org", "/3"), "main", "{}")
    assert offer is not None
    assert offer.words == "fetch on https://docs.python.org"
    for site, is_covered in [
        ("https://docs.python.org", True),
        ("http://docs.python.org", False),
        ("https://docs.python.org:8443", False),
        ("https://docs.python.org.evil.example", False),
    ]:
        other = offered(page(site, "/3/library"), "main", "{}")
        assert other is not None
        grant = granted(offer)
        assert covers(grant, other, session=HERE, now_ms=NOW_MS) is is_covered


def test_a_grant_for_what_must_not_be_repeated_covers_the_same_arguments() -> None:
    pay = msgspec.structs.replace(MAIL, repeat=Repeat.ONCE)
    grant = granted(offered(pay, "main", '{"to": "ada", "amount": 5}'))

    same = decided(pay, None, grant, arguments='{"amount":5,"to":"ada"}')
    other = decided(pay, None, grant, arguments='{"amount":6,"to":"ada"}')

    assert (same.do, other.do) == (Do.ALLOW, Do.ASK)


def test_what_is_asked_once_is_granted_for_one_tool_of_a_server() -> None:
    policy = ToolPolicy(agent="main", approve={"mcp.time": Approve.ONCE})

    def tool(own: str) -> CallTraits:
        return CallTraits(
            names=("mcp.time", f"mcp.time.{own}"),
            repeat=Repeat.ONCE,
            permission=Permission.ACT,
            definition=own,
            has_siblings=True,
        )

    offer = decided(tool("now"), policy).offer
    assert offer is not None
    assert offer.words == "mcp.time.now, any call"
    grant = granted(offer)
    assert decided(tool("now"), policy, grant, arguments='{"zone": "UTC"}').do is Do.ALLOW
    assert decided(tool("set"), policy, grant).do is Do.ASK


def test_what_is_asked_once_in_a_session_is_granted_for_any_call() -> None:
    policy = ToolPolicy(agent="main", approve={"files": Approve.ONCE})
    asked = decided(file_call("/home/a.txt"), policy)
    assert asked.is_once

    grant = granted(asked.offer, Scope.SESSION, session=HERE)

    assert decided(file_call("/home/b.txt", "files.delete"), policy, grant).do is Do.ALLOW
    assert decided(file_call("/home/b.txt"), policy, grant, session=ELSEWHERE).do is Do.ASK


@pytest.mark.parametrize(
    ("change", "covered"),
    [
        ({}, True),
        ({"agent": "other"}, False),
        ({"definition": "v2"}, False),
        ({"act": "mail.send"}, True),
        ({"act": "mailing"}, False),
        ({"act": "mai"}, False),
        ({"pattern": "path:/a"}, True),
    ],
)
def test_a_grant_covers_the_acts_of_the_tool_as_it_was_described(
    change: dict[str, str], covered: bool
) -> None:
    offer = msgspec.structs.replace(ANY_MAIL, **change)

    assert covers(granted(ANY_MAIL), offer, session=HERE, now_ms=NOW_MS) is covered


def test_a_narrow_grant_does_not_cover_a_broader_call() -> None:
    narrow = msgspec.structs.replace(ANY_MAIL, act="mail.send", pattern="path:/a")

    assert not covers(granted(narrow), ANY_MAIL, session=HERE, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("session", "until", "covered"),
    [
        (None, 0, True),
        (HERE, 0, True),
        (ELSEWHERE, 0, False),
        (None, NOW_MS + 1, True),
        (None, NOW_MS, False),
        (None, NOW_MS - 1, False),
    ],
)
def test_a_grant_holds_in_its_session_and_until_its_time_is_over(
    session: SessionId | None, until: int, covered: bool
) -> None:
    grant = Grant(
        id=GrantId("grt_1"), offer=ANY_MAIL, scope=Scope.TIME, session=session, until=until
    )

    assert covers(grant, ANY_MAIL, session=HERE, now_ms=NOW_MS) is covered


# Globs.


@given(st.text("ab/*?", max_size=7), st.text("ab/", max_size=7))
def test_a_glob_matches_as_its_words_say(glob: str, text: str) -> None:
    assert is_match(glob, text) is plainly(glob, text)


def plainly(glob: str, text: str) -> bool:
    """Match as the description of globs says, without care for time."""
    while "***" in glob:
        glob = glob.replace("***", "**")
    if not glob:
        return not text
    if glob.startswith("**"):
        return any(plainly(glob[2:], text[n:]) for n in range(len(text) + 1))
    if glob.startswith("*"):
        ends = range((text + "/").index("/") + 1)
        return any(plainly(glob[1:], text[n:]) for n in ends)
    is_one = bool(text) and (glob[0] == text[0] or (glob[0] == "?" and text[0] != "/"))
    return is_one and plainly(glob[1:], text[1:])


def test_the_time_of_a_match_does_not_explode() -> None:
    # A backtracking matcher would need longer than the universe exists.
    assert not is_match("**a" * 40 + "b", "a" * 2_000)


# What was approved is what runs.


@pytest.mark.parametrize(
    ("name", "arguments", "change", "outlook", "is_same"),
    [
        ("mail", '{"to":"ada","n":1}', {}, Outlook(operands="x"), True),
        ("mail", '{ "n": 1, "to": "ada" }', {}, Outlook(operands="x"), True),
        ("mail", '{"to":"ada","n":1}', {}, Outlook(operands="x", preview="other"), True),
        ("mail", '{"to":"ada","n":2}', {}, Outlook(operands="x"), False),
        ("mail2", '{"to":"ada","n":1}', {}, Outlook(operands="x"), False),
        ("mail", '{"to":"ada","n":1}', {"definition": "v2"}, Outlook(operands="x"), False),
        ("mail", '{"to":"ada","n":1}', {"folder": "/elsewhere"}, Outlook(operands="x"), False),
        ("mail", '{"to":"ada","n":1}', {}, Outlook(operands="y"), False),
    ],
)
def test_what_was_approved_has_one_digest(
    name: str, arguments: str, change: dict[str, str], outlook: Outlook, is_same: bool
) -> None:
    asked = frozen_digest("mail", '{"to":"ada","n":1}', MAIL, Outlook(operands="x"))
    now = frozen_digest(name, arguments, msgspec.structs.replace(MAIL, **change), outlook)

    assert (now == asked) is is_same


def test_arguments_that_are_no_json_are_compared_as_they_are() -> None:
    assert canonical("not json") == "not json"
    assert canonical('{"b":1,"a":2}') == canonical('{"a": 2, "b": 1}')
    assert canonical("1") != canonical("1.0") or canonical("1.0") == "1.0"
    deep = "[" * 100_000
    assert canonical(deep) == deep
