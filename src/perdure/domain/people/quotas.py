"""Defines how much one member may have: of the disk, of files, of turns and of requests.

Operators have no quotas, and a quota of 0 means no limit. A request beyond a quota is refused
before anything is stored, in words that say what to do. It can be retried if waiting is enough.
"""

from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.errors import Rejected


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one person's limits. `bytes` counts their messages and files, `files` the files that no
    message has named yet, and `turns` the turns that wait or are being answered."""

    bytes: int = 0
    files: int = 0
    turns: int = 0
    requests_per_minute: int = 0


NO_QUOTA: Final = Quota()


class QuotaKind(StrEnum):
    """Says which quota is used up."""

    BYTES = "bytes"
    FILES = "files"
    TURNS = "turns"
    REQUESTS = "requests"


# OpenAI's codes for a limit that waiting helps against, and for one that it does not.
RATE: Final = "rate_limit_exceeded"
USED_UP: Final = "insufficient_quota"
TURN_WAIT_S: Final = 5.0


class OverQuota(Rejected):
    """Says that a member has used up a quota. `retry_after_s` is None if waiting does not help."""

    def __init__(
        self, message: str, *, kind: QuotaKind, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, code=USED_UP if retry_after_s is None else RATE)
        self.kind = kind
        self.retry_after_s = retry_after_s


def bytes_used_up(quota: Quota) -> OverQuota:
    return OverQuota(
        f"your messages and files take up the {quota.bytes:,} bytes that one person may store "
        "here; ask an operator of this gateway for more",
        kind=QuotaKind.BYTES,
    )


def files_used_up(quota: Quota) -> OverQuota:
    count = "one file" if quota.files == 1 else f"{quota.files:,} files"
    return OverQuota(
        f"{count} of yours were uploaded and sent with no message yet, and more are not kept; send "
        "those, or wait until they are removed after a day",
        kind=QuotaKind.FILES,
    )


def turns_used_up(quota: Quota) -> OverQuota:
    count = "one message" if quota.turns == 1 else f"{quota.turns:,} messages"
    return OverQuota(
        f"{count} of yours wait or are being answered, and one person may have no more at once; "
        "send this again when one of them is answered",
        kind=QuotaKind.TURNS,
        retry_after_s=TURN_WAIT_S,
    )


def requests_used_up(quota: Quota, *, wait_s: float) -> OverQuota:
    allowed = quota.requests_per_minute
    return OverQuota(
        f"one person may ask for something {allowed:,} times a minute here, and that is reached; "
        f"try again in {max(round(wait_s), 1)} s",
        kind=QuotaKind.REQUESTS,
        retry_after_s=wait_s,
    )
