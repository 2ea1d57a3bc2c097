"""Puts commands into a sandbox, made by bubblewrap (`bwrap`).

In it a command sees its roots, which it may write, the programs and libraries of the system, which
it may not, and an empty folder of its own as `/tmp`. It sees no other process, none of the
gateway's files, and no network unless that is configured.

What git runs by itself stays as it is: the hooks and the configuration of a repository at the top
of a root are mounted read-only, because people run git there later, without a sandbox. They are
looked for only while no command runs. A command that runs could swap them for links between the
look and the mount, and get what is outside mounted; once they are mounted, it cannot move them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

# What commands may read of the system.
SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
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
# Mounted over what a command writes into memory otherwise, which no limit counts.
_OWN: Final = ("/tmp", "/dev/shm")  # noqa: S108 - inside of the sandbox
# Made read-only when all is mounted. Without this, a gateway that runs as root would let commands
# change the settings of the kernel below `/proc/sys`: to the kernel they are root as well.
_SEALED: Final = ("/proc", "/dev", "/")
ENVIRONMENT: Final = {
    "HOME": "/tmp",  # noqa: S108 - inside of the sandbox
    "TMPDIR": "/tmp",  # noqa: S108
    "TERM": "dumb",
}


def sandbox_words(
    bwrap: str, roots: Sequence[str], folder: str, guards: Sequence[str], *, has_network: bool
) -> list[str]:
    """Return the words that run a command in a sandbox, which follows them. The folder of bwrap
    itself becomes the `/tmp` of the command."""
    words = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for path in SYSTEM_FOLDERS:
        words += ["--ro-bind-try", path, path]
    for name in _ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    if has_network:
        words += ["--share-net", "--ro-bind-try", _RESOLVING, _RESOLVING]
    for path in _OWN:
        words += ["--bind", ".", path]
    for root in roots:
        words += ["--bind", root, root]
    words += guards
    for path in _SEALED:
        words += ["--remount-ro", path]
    return [*words, "--chdir", folder, "--"]


def git_guards(roots: Sequence[str]) -> list[str]:
    """Return the words that keep the repositories at the top of the roots from being given new
    hooks or another configuration."""
    return [word for root in roots for word in _guard(Path(root, ".git"), roots)]


def _guard(git: Path, roots: Sequence[str]) -> Iterator[str]:
    """Yield the words for one repository."""
    if git.is_file():
        # The file names the repository; it must not name another one later.
        yield from _read_only(git, roots)
    if not (git / "HEAD").is_file():
        return
    if not git.is_symlink():
        # What is mounted cannot be renamed, so no other folder takes its place.
        yield from ("--bind-try", str(git), str(git))
    hooks = git / "hooks"
    if not hooks.is_symlink() and not hooks.exists():
        hooks.mkdir()
    for path in (hooks, git / "config", git / "config.worktree"):
        yield from _read_only(path, roots)


def _read_only(path: Path, roots: Sequence[str]) -> Iterator[str]:
    """Yield the words that mount a path read-only, wherever its links lead. What is outside of the
    roots cannot be written anyway, and is not mounted at all."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return
    if any(real.is_relative_to(root) and real != Path(root) for root in roots):
        yield from ("--ro-bind-try", str(real), str(real))
