"""Describes a tool call before it runs: what it touches, and what rules may say of it."""

import hashlib
from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.outcomes import Repeat


class Permission(StrEnum):
    """Says what a call touches. OWN: only what the gateway itself keeps for this person. READ: it
    reads inside configured folders. ACT: anything else."""

    OWN = "own"
    READ = "read"
    ACT = "act"


class Inquiry(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a question that the agent asks a person by a tool call. The answer is the call's
    result."""

    text: str
    choices: tuple[str, ...] = ()


class Posting(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a call sends into another conversation: to which address, which text, and which
    files of the turn by their names."""

    to: str
    text: str
    files: tuple[str, ...] = ()


class Delegation(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the work that a call gives to another agent, with files of the turn by their names."""

    agent: str
    task: str
    files: tuple[str, ...] = ()


class CallTraits(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is known of a call before it runs, from its tool and its arguments alone.

    `names` are those that rules may use, the broadest first: the tool's own, and that of what the
    call does with it (`files`, `files.write`). `definition` is a digest of the tool's description
    and schema. `paths` are the file that the call is about, absolute and below its root, and `argv`
    is the command that it runs. A call that reads the web has its address in `paths`, and `site` is
    what of it people may grant. `has_siblings`: the first name stands for several tools, each with
    a definition of its own. `folder` is where it works. `ends_with_turn`: a stop ends the call even
    if it must not be repeated. `inquiry` is set if a person must answer the call. `posting` is set
    if the call sends something: the store does that in the transaction that stores the result.
    `delegation` is set if another agent does the work, and the turn waits for it. `problem` says
    why the call cannot run; then nobody is asked about it.
    """

    names: tuple[str, ...]
    repeat: Repeat
    permission: Permission
    definition: str = ""
    paths: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    site: str = ""
    has_siblings: bool = False
    folder: str = ""
    ends_with_turn: bool = False
    inquiry: Inquiry | None = None
    posting: Posting | None = None
    delegation: Delegation | None = None
    problem: str = ""

    @property
    def tool(self) -> str:
        """Return the tool's own name."""
        return self.names[0]

    @property
    def act(self) -> str:
        """Return the narrowest name: what the call does."""
        return self.names[-1]

    @property
    def defined(self) -> str:
        """Return the name of all that the definition describes: the tool with all that it does, or
        one tool of several."""
        return self.act if self.has_siblings else self.tool


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a call would do if it ran now. `preview` is shown to the person who is asked, such
    as a diff. `operands` is a digest of what the call works on, which must not have changed when
    it runs. `problem` says why the call cannot work; then nobody is asked about it."""

    preview: str = ""
    operands: str = ""
    problem: str = ""


NOTHING_AHEAD: Final = Outlook()


def canonical(arguments: str) -> str:
    """Return a call's arguments, written so that arguments with the same meaning are equal."""
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    return msgspec.json.encode(value, order="deterministic").decode()


def digest_of(*parts: str) -> str:
    """Return a digest of several texts, each at its place."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def frozen_digest(name: str, arguments: str, traits: CallTraits, outlook: Outlook) -> str:
    """Return the digest of a call as a person was asked about it: the tool with its description and
    schema, the arguments, the folder in which it works, and what it works on. A call with another
    digest is not the one that was approved."""
    definition, folder = traits.definition, traits.folder
    return digest_of(name, definition, canonical(arguments), folder, outlook.operands)
