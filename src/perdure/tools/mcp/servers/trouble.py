"""Decides when a server that has failed may be tried again."""

from perdure.ports.system.entropy import Entropy


class ServerTrouble:
    """Counts failures in a row. After the first one the server may be tried again at once; after
    each further one the pause doubles, up to a bound. Success ends the trouble."""

    def __init__(self, entropy: Entropy, *, rest_s: float, rest_max_s: float) -> None:
        self._entropy = entropy
        self._rest_s = rest_s
        self._rest_max_s = rest_max_s
        self._due_s = 0.0
        self.failures = 0
        self.why = ""

    def fail(self, why: str, *, now_s: float) -> None:
        """Note a failure, and why."""
        self.failures += 1
        self.why = why
        if self.failures > 1:
            # The exponent is bounded, so that no number of failures overflows.
            pause_s = min(self._rest_s * 2.0 ** min(self.failures - 2, 60), self._rest_max_s)
            # Servers that failed together are not tried together again.
            share = int.from_bytes(self._entropy.random_bytes(2), "big") / 65_536
            self._due_s = now_s + pause_s * (0.75 + share / 2)

    def end(self) -> None:
        """Note that the server works."""
        self.failures = 0
        self.why = ""
        self._due_s = 0.0

    def left_s(self, now_s: float) -> float:
        """Return how long the server is left alone from now on; 0 if it may be tried."""
        return max(self._due_s - now_s, 0.0) if self.failures else 0.0

    def words(self, now_s: float) -> str:
        """Return what is wrong, and when the server is tried again. Empty without trouble."""
        if not self.failures:
            return ""
        left_s = self.left_s(now_s)
        when = f"in {left_s:.0f} s at the earliest" if left_s >= 1 else "as soon as it is needed"
        return f"{self.why}; it is tried again {when}"
