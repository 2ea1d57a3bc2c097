"""Measures the highest memory use of a gateway process, as Linux counts it in `/proc`."""

import re
from pathlib import Path

from perdure.testkit.processes.http import Client


def peak_mb(client: Client) -> int:
    """Return the highest resident memory of the gateway so far, in MB."""
    status = Path(f"/proc/{client.gateway.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) // 1024


def forget_peak(client: Client) -> int:
    """Reset the peak to what is in use now, and return it."""
    # Writing 5 resets the kernel's peak (`VmHWM`) and nothing else.
    Path(f"/proc/{client.gateway.pid}/clear_refs").write_text("5")
    return peak_mb(client)
