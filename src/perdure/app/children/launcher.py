"""Runs one program, and ends it with everything that it has started.

This file is run by itself, as a small process between the gateway and the program (`python -I -S
launcher.py`), so it imports only what is quick to load, and nothing of ours. The gateway holds one
end of a socket, the line, and this process holds the other. When the gateway dies, however it dies,
the line closes, and this process kills all of its descendants. As a subreaper (Linux) it is the
parent of descendants whose own parents have died, so it also finds those that have left the process
group or the session.

Over the line the gateway first sends what to run, as JSON. This process answers `started`, or why
the program cannot be started, and at the end how it has ended, each as a line of JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# How often the memory and the processes are counted: soon after the start and after each growth,
# and rarely once they stay the same.
LOOK_FIRST_S = 0.1
LOOK_LAST_S = 2.0
# How long the program has to end by itself after it was asked.
GRACE_S = 1.0
SPEC_MAX = 4_000_000
FILES_MAX = 65_536


def main(line: socket.socket) -> int:
    """Run the program that the gateway names, until it ends or the gateway is gone."""
    # Whatever else is open came from the gateway by accident.
    os.closerange(3, line.fileno())
    os.closerange(line.fileno() + 1, FILES_MAX)
    os.set_inheritable(line.fileno(), False)  # noqa: FBT003 - the system's own call
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for asked in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked, signal.SIG_IGN)
    spec = received(line)
    if spec is None:
        return 0
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    problem, pid = start(spec)
    if problem:
        say(line, {"problem": problem})
        return 0
    say(line, {"started": pid})
    # The program alone holds the ends of its pipes now, so that their readers see its end.
    hollow = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(hollow, stream)
    watch = Watch(line, woken, spec, pid)
    say(line, watch.run())
    if watch.is_alone and spec["folder"]:
        # Nobody else is left to remove what the program has put into its own folder.
        import shutil  # noqa: PLC0415

        shutil.rmtree(spec["folder"], ignore_errors=True)
    return 0


def received(line: socket.socket) -> dict[str, Any] | None:
    """Return what the gateway wants run; None if it is gone."""
    told = b""
    while not told.endswith(b"\n"):
        piece = line.recv(65536)
        if not piece or len(told) > SPEC_MAX:
            return None
        told += piece
    wanted: dict[str, Any] = json.loads(told)
    return wanted


def say(line: socket.socket, what: dict[str, Any]) -> None:
    """Tell the gateway something, if it still lives."""
    with contextlib.suppress(OSError):
        line.sendall(json.dumps(what).encode() + b"\n")


def start(spec: dict[str, Any]) -> tuple[str, int]:
    """Start the program in a process group of its own. Returns why it cannot be started, or its
    process id."""
    failing, failed = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become(spec)
        except OSError as error:
            os.write(failed, (error.strerror or str(error)).encode())
        except BaseException as error:  # noqa: BLE001 - nothing may run on in this process
            os.write(failed, str(error).encode() or b"it failed")
        os._exit(127)
    os.close(failed)
    problem = os.read(failing, 4096).decode(errors="replace")
    os.close(failing)
    if problem:
        os.waitpid(pid, 0)
    return problem, pid


def become(spec: dict[str, Any]) -> None:
    """Become the program: in a session of its own, with its limits."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(each, signal.SIG_DFL)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for name, most in (("RLIMIT_NOFILE", spec["files"]), ("RLIMIT_CPU", spec["cpu_s"])):
        if most:
            limit = getattr(resource, name)
            _, hard = resource.getrlimit(limit)
            allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(limit, (allowed, allowed))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if spec["is_merged"]:
        os.dup2(1, 2)
    os.chdir(spec["cwd"])
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])


class Watch:
    """Waits for the end of the program, and counts what it uses meanwhile."""

    def __init__(self, line: socket.socket, woken: int, spec: dict[str, Any], pid: int) -> None:
        self._line = line
        self._woken = woken
        self._spec = spec
        self._pid = pid
        self._pause_s = LOOK_FIRST_S
        self._used = (0, 0)
        self.is_alone = False

    def run(self) -> dict[str, Any]:
        """Return how the program has ended. All of its descendants have ended by then."""
        ended = None
        why = ""
        while ended is None and not why:
            line = self._line.fileno()
            ready, _, _ = select.select([line, self._woken], [], [], self._pause_s)
            if self._woken in ready:
                os.read(self._woken, 4096)
            if line in ready:
                self._ask(self._line.recv(4096))
            ended = self._reaped()
            if ended is None:
                why = self._broken_limit()
        kill_all(self._pid)
        if ended is None:
            ended = self._reaped(is_last=True) or {"signal": int(signal.SIGKILL)}
        return {**ended, "limit": why} if why else ended

    def _ask(self, word: bytes) -> None:
        """Do what the gateway asks: end the program, at once if the gateway itself is gone."""
        self.is_alone = not word
        if word:
            self._ask_to_end()
            until = time.monotonic() + GRACE_S
            while time.monotonic() < until and self._is_alive():
                select.select([self._woken], [], [], 0.05)
        kill_all(self._pid)

    def _ask_to_end(self) -> None:
        """Ask the program's group to end. A wrapper would die of it at once, and take what runs
        inside of it along before that has put its things in order."""
        if self._spec["is_wrapper"] and has_proc():
            for pid in descendants(os.getpid()):
                if pid != self._pid:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGTERM)
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGTERM)

    def _is_alive(self) -> bool:
        """Tell whether the program itself still runs."""
        found = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return found is None

    def _reaped(self, *, is_last: bool = False) -> dict[str, Any] | None:
        """Take in every process that has ended. Returns how the program has ended, if it has."""
        ended = None
        while True:
            try:
                pid, status = os.waitpid(-1, 0 if is_last else os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            if pid == self._pid:
                code = os.waitstatus_to_exitcode(status)
                ended = {"signal": -code} if code < 0 else {"code": code}

    def _broken_limit(self) -> str:
        """Return the name of the limit that the program and its descendants have broken."""
        if not has_proc():
            return ""
        pids = descendants(os.getpid())
        used = (len(pids), sum(map(resident, pids)))
        is_growing = used[0] > self._used[0] or used[1] > self._used[1] * 1.1
        self._pause_s = LOOK_FIRST_S if is_growing else min(self._pause_s * 2, LOOK_LAST_S)
        self._used = used
        if self._spec["processes"] and used[0] > self._spec["processes"]:
            return "processes"
        return "memory" if 0 < self._spec["memory_bytes"] < used[1] else ""


def descendants(root: int) -> list[int]:
    """Return the processes below this one."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The program's name may hold spaces and brackets; the rest follows the last.
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    below.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    looking = [root]
    while looking:
        children = below.get(looking.pop(), [])
        found += children
        looking += children
    return found


def resident(pid: int) -> int:
    """Return the bytes that a process holds and does not share with others."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, held, shared = map(int, file.read().split()[:3])
    except (OSError, ValueError):
        return 0
    return max(held - shared, 0) * resource.getpagesize()


def kill_all(program: int) -> None:
    """Kill every descendant. They are stopped first, so that none starts another one meanwhile.
    Without /proc only the program's own group is found."""
    pause_s = 0.001
    while True:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(program, signal.SIGKILL)
        pids = descendants(os.getpid()) if has_proc() else []
        if not pids:
            return
        for word in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, word)
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.5)


def has_proc() -> bool:
    """Tell whether the system shows its processes as files (Linux)."""
    return os.path.isdir("/proc/self")


if __name__ == "__main__":
    sys.exit(main(socket.socket(fileno=int(sys.argv[1]))))
