"""Decides whether a tool call may run: at once, after a person was asked, or not at all.

Rules are asked first: one that says deny wins over everything else; otherwise the first one that
matches decides. Then comes what is configured for the tool, and where nothing is set, what the call
touches. A call that must be asked about may run without a question if a grant of the same person
covers it. A grant never covers a command behind a shell, `env` or another program that starts
programs, because the command that would run is not the one that was granted.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from perdure.domain.ids import SessionId
from perdure.domain.journal.question_events import GrantOffer
from perdure.domain.outcomes import Repeat
from perdure.domain.tools.globs import is_match
from perdure.domain.tools.grants import (
    Grant,
    covers,
)
from perdure.domain.tools.traits import CallTraits, Permission, canonical, digest_of


class Approve(StrEnum):
    """Says when a person is asked about a tool: at each call, at the first in a session, or
    never."""

    ALWAYS = "always"
    ONCE = "once"
    NEVER = "never"


class Do(StrEnum):
    """Says what happens to a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Refines the policy for the calls of `tool` (a name or a glob of names) that match `match`, a
    glob on a path, on the address of a page, or on an argument vector. An empty `match` matches
    every call."""

    tool: str
    do: Do
    match: str = ""


class ToolPolicy(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Holds what is configured about the tools of one agent: when a person is asked about each
    tool, and the rules. `agent` is the agent's name. Policies are compared by identity, so that
    backends stay hashable."""

    agent: str = ""
    approve: Mapping[str, Approve] = MappingProxyType({})
    rules: tuple[Rule, ...] = ()

    def denied(self, *names: str) -> tuple[str, ...]:
        """Return the globs of what no call with one of these names may reach. A search of the
        folder above must not find it, and no redirect may lead to it."""
        return tuple(
            rule.match
            for rule in self.rules
            if rule.do is Do.DENY and rule.match and any(is_match(rule.tool, n) for n in names)
        )


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Says what happens to a call, and why. `offer` is what a person may grant beyond this call;
    None if nothing can be granted."""

    do: Do
    why: str
    offer: GrantOffer | None = None
    is_once: bool = False


# Programs that run what another argument or a file says, so that a grant for their name would be a
# grant for anything. Behind another program they hide a command as well, so they are looked for in
# every place.
_SHELLS: Final = frozenset(
    {
        "ash", "bash", "busybox", "csh", "dash", "doas", "env", "fish", "gosu", "ksh", "mksh",
        "perl", "php", "pkexec", "powershell", "pwsh", "pypy", "python", "rbash", "rksh", "ruby",
        "runuser", "setsid", "sh", "ssh", "su", "sudo", "tclsh", "tcsh", "toybox", "xargs", "zsh",
    }
)  # fmt: skip
# Other programs that start the program that their arguments name.
_STARTERS: Final = _SHELLS | {
    "at", "awk", "batch", "bun", "bunx", "bwrap", "chroot", "chrt", "cmd", "deno", "docker",
    "eval", "exec", "expect", "fakeroot", "firejail", "flock", "gawk", "gdb", "ionice", "lua",
    "luajit", "ltrace", "mawk", "nawk", "nice", "node", "nohup", "npx", "nsenter", "numactl",
    "osascript", "parallel", "pipx", "podman", "prlimit", "proot", "rlwrap", "rscript", "screen",
    "script", "setarch", "setpriv", "stdbuf", "strace", "systemd-run", "taskset", "time",
    "timeout", "tmux", "unbuffer", "unshare", "uvx", "valgrind", "watch", "wish", "xvfb-run",
}  # fmt: skip
# Options by which other programs start one, such as `find`, `tar`, `rsync` and `git`.
_STARTING: Final = (
    "-exec", "-ok", "--exec", "--to-command", "--checkpoint-action", "--use-compress-program",
    "--rsh", "--upload-pack", "--receive-pack",
)  # fmt: skip
_META: Final = frozenset(";|&$`<>(){}[]*?!#~\n\r\\\"'")
# A part of a path that leads to the folder above. `...`, as in `go test ./...`, is none.
_ABOVE: Final = re.compile(r"(?<!\.)\.\.(?:/|$)")
# The most characters that are compared with the globs of rules.
MATCHED_MAX: Final = 100_000


def decision_about(
    traits: CallTraits,
    policy: ToolPolicy,
    grants: Iterable[Grant] = (),
    *,
    arguments: str,
    session: SessionId,
    now_ms: int,
) -> Decision:
    """Decide about a call that can run."""
    ruled = _ruled(traits, policy.rules)
    if ruled is not None and ruled.do is not Do.ASK:
        return Decision(do=ruled.do, why=f"a rule for {ruled.tool}")
    mode = policy.approve.get(traits.tool, _usual(traits))
    if ruled is None and mode is Approve.NEVER and not _may_hide(traits, policy.rules):
        return Decision(do=Do.ALLOW, why="policy")
    is_once = ruled is None and mode is Approve.ONCE
    offer = offered(traits, policy.agent, arguments, is_any=is_once)
    covering = _covering(offer, grants, session, now_ms)
    if covering is not None:
        return Decision(do=Do.ALLOW, why=covering.id, offer=offer)
    return Decision(do=Do.ASK, why="policy", offer=offer, is_once=is_once)


def default_for(traits: CallTraits, policy: ToolPolicy) -> Do:
    """Return what the policy says of such a call before any grant, without its arguments."""
    ruled = _ruled(traits, policy.rules)
    if ruled is not None:
        return ruled.do
    mode = policy.approve.get(traits.tool, _usual(traits))
    return Do.ALLOW if mode is Approve.NEVER else Do.ASK


def offered(
    traits: CallTraits, agent: str, arguments: str, *, is_any: bool = False
) -> GrantOffer | None:
    """Return what a person may grant beyond this call, or None if nothing can be granted. Calls
    about a file are granted for that file, those about a page for its site, commands for exactly
    these arguments, and so are calls that must not be repeated; other tools are granted with any
    arguments. With `is_any` the tool is asked about once in a session, whatever its arguments."""
    if starts_others(traits.argv):
        return None
    act, definition = traits.act, traits.definition
    if is_any:
        # No more than what was described to the person: a server may have any number of tools.
        tool = traits.defined
        return GrantOffer(agent=agent, act=tool, definition=definition, words=f"{tool}, any call")
    pattern, words = _pattern(traits, arguments)
    return GrantOffer(
        agent=agent, act=act, definition=definition, pattern=pattern, words=f"{act} {words}"
    )


def _pattern(traits: CallTraits, arguments: str) -> tuple[str, str]:
    """Return what the arguments of granted calls must be, and the same in words."""
    if traits.site:
        return f"site:{traits.site}", f"on {traits.site}"
    if traits.paths:
        return f"path:{traits.paths[0]}", f"on {traits.paths[-1]}"
    if traits.argv:
        # The arguments also hold the folder and the input, without which it is another command.
        digest = digest_of(canonical(arguments), *traits.argv)
        return f"argv:{digest}", "with exactly these arguments"
    if traits.repeat is Repeat.ONCE:
        return f"arguments:{digest_of(canonical(arguments))}", "with exactly these arguments"
    return "", "with any arguments"


def starts_others(argv: Sequence[str]) -> bool:
    """Tell whether a command may start another one than its name says: through a shell's special
    characters, or because it is a program that starts programs."""
    if not argv:
        return False
    is_assignment = "=" in argv[0]  # the value may hold a path
    is_starter = _is_one_of(_STARTERS, argv[0])
    return is_starter or is_assignment or any(map(_hides_one, argv))


def _hides_one(word: str) -> bool:
    """Tell whether a word of a command may hold or start another command."""
    has_meta = bool(_META.intersection(word))
    return has_meta or word.startswith(_STARTING) or _is_one_of(_SHELLS, word)


def _is_one_of(programs: frozenset[str], word: str) -> bool:
    """Tell whether a word names one of these programs, wherever it is and whatever its version."""
    name = word.rsplit("/", 1)[-1].lower().removesuffix(".exe")
    return name in programs or name.rstrip("0123456789.-") in programs


def _may_hide(traits: CallTraits, rules: Sequence[Rule]) -> bool:
    """Tell whether a command may start another one that a rule denies. What it would start is not
    known, so people are asked also where they are never asked otherwise."""
    return starts_others(traits.argv) and any(
        rule.do is Do.DENY and rule.match and _names(rule, traits) for rule in rules
    )


def _ruled(traits: CallTraits, rules: Sequence[Rule]) -> Rule | None:
    """Return the rule that decides, or None."""
    matching = [rule for rule in rules if _applies(rule, traits)]
    denying = next((rule for rule in matching if rule.do is Do.DENY), None)
    return denying or next(iter(matching), None)


def _applies(rule: Rule, traits: CallTraits) -> bool:
    """Tell whether a rule is about this call. A rule that allows a command never reaches through
    another program that starts it, and its glob never covers a path that leads upwards again: such
    a path begins in a folder that the rule names and ends in another one."""
    if not _names(rule, traits):
        return False
    if rule.do is Do.ALLOW and starts_others(traits.argv):
        return False
    if not rule.match:
        return True
    texts = _spellings(traits.argv, rule.do) if traits.argv else traits.paths
    if any(len(text) > MATCHED_MAX for text in texts):
        return rule.do is not Do.ALLOW  # it is too long to be compared, and may match
    if rule.do is Do.ALLOW and any(map(_ABOVE.search, traits.argv or traits.paths)):
        return False
    return any(is_match(rule.match, text) for text in texts)


def _names(rule: Rule, traits: CallTraits) -> bool:
    """Tell whether a rule names the tool of a call, or what the call does with it."""
    return any(is_match(rule.tool, name) for name in traits.names)


def _spellings(argv: Sequence[str], do: Do) -> list[str]:
    """Return a command as rules may write it: as it is, and with its program's bare name. A rule
    that allows means the program on the search path, not another one with the same name."""
    if do is Do.ALLOW:
        return [" ".join(argv)]
    program = argv[0].rsplit("/", 1)[-1]
    return [" ".join(argv), " ".join([program, *argv[1:]])]


def _usual(traits: CallTraits) -> Approve:
    """Return when a person is asked where nothing is configured."""
    return Approve.ALWAYS if traits.permission is Permission.ACT else Approve.NEVER


def _covering(
    offer: GrantOffer | None, grants: Iterable[Grant], session: SessionId, now_ms: int
) -> Grant | None:
    """Return a grant that covers what is offered, or None."""
    if offer is None:
        return None
    return next((g for g in grants if covers(g, offer, session=session, now_ms=now_ms)), None)
