"""Puts programs into a sandbox, made by bubblewrap (`bwrap`).

In it a program sees what it is shown, which may be read-only, the programs and libraries of the
system, and an empty folder of its own as `/tmp`. It sees no other process, none of the gateway's
files, and no network unless it is given.
"""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Final

import msgspec

from perdure.domain.errors import PerdureError, Transient
from perdure.ports.system.children import ChildLimits, ChildProgram, Children
from perdure.ports.system.sandbox import SYSTEM_FOLDERS, Sandbox
from perdure.ports.system.time_limits import time_limit

# Only these, because other files below /etc may hold secrets.
_ETC: Final = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "fonts",
    "gitconfig", "group", "host.conf", "hosts", "java", "java-17-openjdk", "ld.so.cache",
    "ld.so.conf", "ld.so.conf.d", "localtime", "magic", "mime.types", "nsswitch.conf", "os-release",
    "passwd", "perl", "pki", "protocols", "python3", "services", "ssl/certs", "ssl/openssl.cnf",
    "terminfo", "timezone",
)  # fmt: skip
# Needed to find names on the network.
_RESOLVING: Final = "/etc/resolv.conf"
# Mounted over what a program writes into memory otherwise, which no limit counts.
_OWN: Final = ("/tmp", "/dev/shm")  # noqa: S108 - inside of the sandbox
# Made read-only when all is mounted. Without this, a gateway that runs as root would let programs
# change the settings of the kernel below `/proc/sys`: to the kernel they are root as well.
_SEALED: Final = ("/proc", "/dev", "/")
_PROBE_S: Final = 15.0
_PROBE_LIMITS: Final = ChildLimits(memory_bytes=200_000_000, processes=16)
_PIECE_BYTES: Final = 65_536
_CAUSE_CHARS: Final = 300


def sandboxed(program: ChildProgram) -> ChildProgram:
    """Return what is started for a program: bubblewrap around it, if it wants a sandbox. Raises
    `Transient` if bubblewrap is not there."""
    sandbox = program.sandbox
    if sandbox is None:
        return program
    bwrap = _bwrap(sandbox)
    if bwrap is None:
        raise Transient("there is no program bwrap on the search path; install bubblewrap")
    argv = (bwrap, *_words(sandbox), "--", *program.argv)
    return msgspec.structs.replace(program, argv=argv, is_wrapper=True, sandbox=None)


async def sandbox_trouble(children: Children, sandbox: Sandbox) -> str:
    """Return why no program can be started in a sandbox, or an empty string. One is started in
    earnest: bubblewrap may be installed and still be forbidden to make a sandbox."""
    if _bwrap(sandbox) is None:
        return "there is no program bwrap on the search path"
    program = ChildProgram(argv=("true",), limits=_PROBE_LIMITS, is_merged=True, sandbox=sandbox)
    said = b""
    try:
        child = await children.start(program)
        try:
            async with time_limit(_PROBE_S):
                while len(said) < _PIECE_BYTES and (piece := await child.read(_PIECE_BYTES)):
                    said += piece
                ended = await child.wait()
        finally:
            await asyncio.shield(child.end(within_s=0))
    except TimeoutError:
        return f"it has not started within {_PROBE_S:g} s"
    except PerdureError as error:
        return error.message
    if ended.code == 0:
        return ""
    return said.decode(errors="replace").strip()[:_CAUSE_CHARS] or f"it {ended.words}"


def _bwrap(sandbox: Sandbox) -> str | None:
    """Return the path of bubblewrap, unless a program in a sandbox could have put it there."""
    path = sandbox.search_path or os.environ.get("PATH", os.defpath)
    found = shutil.which("bwrap", path=path)
    if found is None:
        return None
    real = Path(found).resolve()
    is_theirs = any(each.is_writable and real.is_relative_to(each.path) for each in sandbox.mounts)
    return None if is_theirs else found


def _words(sandbox: Sandbox) -> list[str]:
    """Return what bubblewrap is told. Its own folder becomes the `/tmp` of the program."""
    words = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for path in SYSTEM_FOLDERS:
        words += ["--ro-bind-try", path, path]
    for name in _ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    if sandbox.has_network:
        words += ["--share-net", "--ro-bind-try", _RESOLVING, _RESOLVING]
    for path in _OWN:
        words += ["--bind", ".", path]
    for mount in sandbox.mounts:
        word = "--bind" if mount.is_writable else "--ro-bind"
        words += [word if mount.must_exist else f"{word}-try", mount.path, mount.path]
    for path in _SEALED:
        words += ["--remount-ro", path]
    return [*words, "--chdir", sandbox.folder]
