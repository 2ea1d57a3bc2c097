"""Says what a program sees that is started in a sandbox."""

from typing import Final

import msgspec

# What every sandbox shows of the system, read-only.
SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """Names a file or folder that a sandbox shows where it really is. If it is not there, it is
    left out, unless it `must_exist`."""

    path: str
    is_writable: bool = False
    must_exist: bool = False


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """Says what a program sees: `mounts`, each of which covers what the ones before it show at its
    place; programs and libraries of the system; no other process; and a network only with
    `has_network`. `folder` is where it begins. The folder that the program would have begun in
    becomes its `/tmp`. `search_path` is where the program that makes sandboxes is looked for, but
    never in a folder that may be written from inside."""

    folder: str
    mounts: tuple[Mount, ...] = ()
    has_network: bool = False
    search_path: str = ""
