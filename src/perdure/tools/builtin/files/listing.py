"""Lists what is in a folder, page by page."""

import os
from collections.abc import Iterable
from contextlib import suppress

from perdure.domain.tools.globs import is_match
from perdure.tools.builtin.files.bounds import FilesBounds
from perdure.tools.builtin.files.opening import FolderEntry, folder_entries, opened_folder
from perdure.tools.builtin.files.roots import RootedPath, is_sayable


def list_page(path: RootedPath, *, offset: int, count: int, names: str, bounds: FilesBounds) -> str:
    """Return the entries of a folder whose names match the glob, after `offset` others."""
    with opened_folder(path) as folder:
        entries, is_more = folder_entries(folder, limit=bounds.folder_entries)
        found = [each for each in entries if not names or is_match(names, each.name)]
        told = (_line(folder, entry) for entry in found[offset : offset + count])
        lines = _fitting(told, bounds.page_bytes)
        last = offset + len(lines)
    of = f" that match {names}" if names else ""
    if not lines and not offset:
        return f"[{path.shown}: no entries{of}]"
    if not lines:
        return f"[{path.shown}: {len(found):,} entries{of}, so none after {offset:,}]"
    heading = f"[{path.shown}: entries {offset + 1:,} to {last:,} of {len(found):,}{of}]"
    notes = [f"[list with offset {last} for more]"] if last < len(found) else []
    if is_more:
        notes.append(
            f"[the folder has more than {bounds.folder_entries:,} entries, and only so many were "
            "looked at]"
        )
    return "\n".join([heading, *lines, *notes])


def _fitting(lines: Iterable[str], bytes_max: int) -> list[str]:
    """Return the first lines that fit together, but at least one."""
    sizes = 0
    kept: list[str] = []
    for line in lines:
        sizes += len(line.encode()) + 1
        if kept and sizes > bytes_max:
            break
        kept.append(line)
    return kept


def _line(folder: int, entry: FolderEntry) -> str:
    """Return an entry in words."""
    if not is_sayable(entry.name):
        return f"{entry.name!a} (a {entry.kind} whose name no call can give)"
    if entry.kind == "folder":
        return f"{entry.name}/"
    if entry.kind != "file":
        return f"{entry.name} (a {entry.kind}, which is not opened)"
    size = "unknown"
    with suppress(OSError):
        size = f"{os.stat(entry.name, dir_fd=folder, follow_symlinks=False).st_size:,}"
    return f"{entry.name}, {size} bytes"
