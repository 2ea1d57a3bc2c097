"""Says what is started for a configured agent, and what the process sees.

Below `base` each group of people has a folder: `work` with the working folders of its sessions, and
a home for each of its processes. Agents lock and write files of their home, so two processes never
share one, and the next process in the same home finds the sessions of the one before.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from perdure.agents.acp.programs.presets import OTHER, Preset
from perdure.domain.errors import Rejected
from perdure.ports.system.children import ChildLimits, ChildProgram
from perdure.ports.system.sandbox import SYSTEM_FOLDERS, Mount, Sandbox

_MEGABYTE: Final = 1_000_000
_LINKS_MAX: Final = 16
_SHEBANG_BYTES: Final = 256
_MODULES: Final = "node_modules"
# Where agents look for the model and the bridge, which must not go through a proxy.
_LOOPBACK: Final = "127.0.0.1,localhost,::1"


class AgentProgram(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is configured about an agent's program.

    `env` wins over the preset's. `roots` may be written by the agent, `sees` only read, and nothing
    that is shown may hold `hidden`, the gateway's home. `has_own_tools`: the agent keeps its own
    tools for files and commands. `share` says whether people may share its processes; None means:
    only without its own tools. `search_path` is where the gateway looks for programs.
    """

    agent: str
    base: Path
    preset: Preset = OTHER
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    roots: tuple[Path, ...] = ()
    sees: tuple[Path, ...] = ()
    hidden: Path | None = None
    has_own_tools: bool = False
    has_sandbox: bool = True
    share: bool | None = None
    search_path: str = os.defpath
    limits: ChildLimits = ChildLimits(memory_bytes=6_000 * _MEGABYTE, processes=512)

    @property
    def is_shared(self) -> bool:
        """Tell whether people share processes."""
        if self.share is not None:
            return self.share
        return self.preset.may_lose_tools and not self.has_own_tools

    @property
    def argv(self) -> tuple[str, ...]:
        """Return the words that start the program."""
        words = () if self.has_own_tools else self.preset.words_without_tools
        return (*(self.command or self.preset.command), *words)

    @property
    def meta(self) -> Mapping[str, object]:
        """Return what each session is told in addition."""
        return {} if self.has_own_tools else self.preset.meta_without_tools

    @property
    def path(self) -> str:
        """Return where the program is looked for."""
        return self.env.get("PATH") or self.search_path

    def folder(self, group: str) -> Path:
        """Return the folder of a group."""
        name = hashlib.sha256(group.encode()).hexdigest()[:16] if group else "all"
        return self.base / name

    def home(self, group: str, slot: int) -> Path:
        """Return the home of one process of a group."""
        return self.folder(group) / f"home-{slot}"

    def work(self, group: str) -> Path:
        """Return the folder that holds the working folders of a group."""
        return self.folder(group) / "work"

    def environment(self, home: Path) -> dict[str, str]:
        """Return the variables of a process with this home."""
        without = {} if self.has_own_tools else self.preset.env_without_tools
        ours = {"HOME": "{home}", "TERM": "dumb", "NO_COLOR": "1", **self.preset.env, **without}
        filled = {name: text.replace("{home}", str(home)) for name, text in ours.items()}
        return {"NO_PROXY": _LOOPBACK, "no_proxy": _LOOPBACK, **filled, **self.env}

    def files(self) -> dict[str, str]:
        """Return the files that are written into a home before each start."""
        without = {} if self.has_own_tools else self.preset.files_without_tools
        return {**self.preset.files, **without}


def prepared(program: AgentProgram, group: str, slot: int, *, has_sandbox: bool) -> ChildProgram:
    """Make the folders and files of one process, and return what to start. It is put into a sandbox
    if it shall have one and one starts. Reads and writes the disk. Raises `Rejected` if there is no
    such program."""
    home, work = program.home(group, slot), program.work(group)
    for folder in (program.folder(group), home, work):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in program.files().items():
        path = home / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    env = program.environment(home)
    if not (has_sandbox and program.has_sandbox):
        argv = program.argv
        found_program(argv, program.path)
        return ChildProgram(argv=argv, env=env, cwd=str(home), limits=program.limits)
    argv = (found_program(program.argv, program.path), *program.argv[1:])
    shown = [
        Mount(path=path) for path in (*_shown(argv, program.path, program.hidden), *_seen(program))
    ]
    theirs = [path for path in _folders_of(env, home) if _is_safe(path, program.hidden)]
    writable = [*program.roots, *theirs]
    mounts = [
        *shown,
        *(Mount(path=str(path), is_writable=True) for path in writable),
        *(Mount(path=str(path), is_writable=True, must_exist=True) for path in (home, work)),
    ]
    return ChildProgram(
        argv=argv,
        env={**env, "TMPDIR": "/tmp"},  # noqa: S108 - inside of the sandbox
        limits=program.limits,
        sandbox=Sandbox(
            folder=str(home),
            mounts=tuple(mounts),
            has_network=True,
            search_path=program.search_path,
        ),
    )


def probe(program: AgentProgram) -> Sandbox:
    """Return a sandbox that is like those of the agent, to see whether one starts."""
    program.base.mkdir(mode=0o700, parents=True, exist_ok=True)
    base = Mount(path=str(program.base), is_writable=True, must_exist=True)
    return Sandbox(
        folder=str(program.base),
        mounts=(base,),
        has_network=True,
        search_path=program.search_path,
    )


def found_program(argv: Sequence[str], path: str) -> str:
    """Return the path of the program that these words start. Raises `Rejected`."""
    if not argv:
        raise Rejected("no command is configured; add command, or a preset")
    found = shutil.which(argv[0], path=path)
    if found is None:
        raise Rejected(
            f"there is no program {argv[0]!r} on the search path; install it, or write its whole "
            "path in command"
        )
    return str(Path(found).absolute())


def fingerprint(program: AgentProgram) -> tuple[tuple[str, int, int, int], ...]:
    """Return what changes when another version of the program is installed: its file, and that of
    the script that it runs. Reads the disk."""
    try:
        words = [found_program(program.argv, program.path)]
    except Rejected:
        return ()
    words += [word for word in program.argv[1:] if word.startswith("/")][:1]
    found = []
    for word in words:
        try:
            real = Path(word).resolve()
            stat = real.stat()
        except OSError:
            continue
        found.append((str(real), stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return tuple(found)


def _folders_of(env: Mapping[str, str], home: Path) -> Iterator[Path]:
    """Yield the folders outside of the home that the configuration makes part of it."""
    for name, text in env.items():
        if text.startswith("/") and (name == "HOME" or name.endswith(("_HOME", "_DIR"))):
            path = Path(text)
            if path.is_dir() and not path.is_relative_to(home):
                yield path


def _shown(argv: Sequence[str], path: str, hidden: Path | None) -> list[str]:
    """Return what of the disk the program consists of, as far as its words tell."""
    words = [argv[0], *(word for word in argv[1:] if word.startswith("/"))]
    found: dict[str, None] = {}
    for word in [*words, *_interpreters(argv[0], path)]:
        for link in _links(Path(word)):
            for place in _package(link):
                if _is_safe(place, hidden) and not _is_of_the_system(place):
                    found[str(place)] = None
    # A folder that holds another one is mounted first, so that it does not cover it.
    return sorted(found)


def _seen(program: AgentProgram) -> list[str]:
    """Return what the process sees besides. If the gateway is installed around its own home, what
    lies beside the home is shown."""
    return [str(part) for path in program.sees for part in _beside(path, program.hidden)]


def _beside(path: Path, hidden: Path | None) -> Iterator[Path]:
    if _is_safe(path, hidden):
        yield path
    elif path.is_dir() and path.resolve() != (hidden or path).resolve():
        for part in sorted(path.iterdir()):
            yield from _beside(part, hidden)


def _interpreters(program: str, path: str) -> Iterator[str]:
    """Yield what runs a program that is a script."""
    try:
        with Path(program).open("rb") as file:
            line = file.read(_SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError:
        return
    if not line.startswith(b"#!"):
        return
    for word in line[2:].decode(errors="replace").split():
        found = shutil.which(word, path=path)
        if found is not None:
            yield found


def _links(path: Path) -> Iterator[Path]:
    """Yield a path, every link on the way to what it names, and that."""
    for _ in range(_LINKS_MAX):
        yield path
        if not path.is_symlink():
            break
        path = Path(os.path.normpath(path.parent / path.readlink()))
    yield path.resolve()


def _package(path: Path) -> Iterator[Path]:
    """Yield the file or folder that a program's file is a part of."""
    if not path.exists():
        return
    if _MODULES in path.parts:
        yield Path(*path.parts[: path.parts.index(_MODULES) + 1])
        return
    place = path if path.is_dir() else path.parent
    if place.name == "bin" and not _is_wide(place.parent):
        yield place.parent
    elif not _is_wide(place) and place.name != "bin":
        yield place
    else:
        yield path


def _is_wide(folder: Path) -> bool:
    """Tell whether a folder holds much more than a program: a person's home, or one above it."""
    home = Path.home()
    wide = {home, *home.parents, home / ".local", home / ".local" / "share", Path("/opt")}
    return folder in wide or folder in {Path("/tmp"), Path("/var"), Path("/srv"), Path("/mnt")}  # noqa: S108


def _is_safe(path: Path, hidden: Path | None) -> bool:
    """Tell whether showing a path does not show the gateway's home."""
    return hidden is None or not hidden.resolve().is_relative_to(path.resolve())


def _is_of_the_system(path: Path) -> bool:
    return any(path.is_relative_to(each) for each in SYSTEM_FOLDERS)
