"""Holds what a part of the bench found: facts to read and gates to pass."""

import os
import platform

import msgspec


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """Compares a measured number with the limit that it must keep."""

    name: str
    measured: float
    limit: float
    unit: str = "times"
    is_floor: bool = False
    """Says that `limit` is the least that passes, and not the most."""

    @property
    def has_passed(self) -> bool:
        return self.measured >= self.limit if self.is_floor else self.measured <= self.limit

    @property
    def line(self) -> str:
        verdict = "PASS" if self.has_passed else "FAIL"
        sign = "≥" if self.is_floor else "≤"
        return (
            f"{verdict}  {self.name}: {self.measured:,.4g} {self.unit} "
            f"({sign} {self.limit:g} {self.unit})"
        )


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the facts and the gates of one part of the bench."""

    part: str
    facts: list[str]
    gates: list[Gate]

    @property
    def text(self) -> str:
        lines = [f"## {self.part}", "", *(f"- {fact}" for fact in self.facts), ""]
        return "\n".join([*lines, "```", *(gate.line for gate in self.gates), "```", ""])


def machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{platform.system()} {platform.machine()}, {cores} cores, {python}"


def page(findings: list[Findings]) -> str:
    head = [
        "# The last run",
        "",
        "Written by `make bench ARGS=--write`. Ratios are medians over interleaved rounds of one",
        "run; absolute times belong to the machine and to whatever else it was doing.",
        "",
        f"Machine: {machine()}.",
        "",
    ]
    return "\n".join([*head, *(each.text for each in findings)])
