"""Measure and judge the parts, and exit with 1 if a gate is missed: `python -m bench [PART …]
[--write]`."""

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

import uvloop

from bench.report import Findings, machine, page

PARTS = (
    *("turns", "store", "stream", "flight", "start", "recovery", "steering"),
    *("verifying", "written", "batches", "tools", "mcp", "agents", "screen", "schedule"),
)
RESULTS = Path(__file__).with_name("RESULTS.md")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--write", action="store_true", help=f"keep the run as {RESULTS.name}")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; choose of {', '.join(PARTS)}")
    print(f"{machine()}\n", flush=True)
    findings = [_measured(part) for part in options.parts or PARTS]
    if options.write:
        RESULTS.write_text(page(findings))
    return 0 if all(gate.has_passed for each in findings for gate in each.gates) else 1


def _measured(part: str) -> Findings:
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        found: Findings = uvloop.run(importlib.import_module(f"bench.{part}").measure(Path(folder)))
    print(found.text, flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
