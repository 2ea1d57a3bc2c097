"""How much memory a gateway has used at most, by the system's own count."""

import re
from pathlib import Path

from perdure.testkit.http import Client


def peak_mb(client: Client) -> int:
    status = Path(f"/proc/{client.gateway.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) // 1024


def forget_peak(client: Client) -> int:
    """Measure the peak anew, from what is in use now."""
    Path(f"/proc/{client.gateway.pid}/clear_refs").write_text("5")
    return peak_mb(client)
