"""Builds the limits of a node from its configuration."""

from perdure.app.config.values import Config
from perdure.domain.people.notices import NoticeTerms
from perdure.domain.people.quotas import Quota
from perdure.domain.prompt.bounds import Bounds
from perdure.domain.turn.recovery import Policy, Resume
from perdure.engine.turns.runner_services import Limits


def quota_of(config: Config) -> Quota:
    """Return how much each member may use."""
    member = config.quotas.member
    return Quota(
        bytes=member.bytes,
        files=member.files,
        turns=member.turns,
        requests_per_minute=member.requests_per_minute,
    )


def limits_of(config: Config, *, turns_max: int) -> Limits:
    """Return the limits of the engine. `turns_max` is how many turns the file descriptors of this
    process allow at once."""
    return Limits(
        concurrent=min(config.turns.concurrent, turns_max),
        turn_timeout_s=config.turns.timeout_s,
        steps_max=config.turns.steps_max,
        bounds=Bounds(
            answer_bytes=config.limits.answer_bytes,
            answer_calls=config.limits.answer_calls,
            turn_bytes=config.limits.turn_bytes,
            turn_calls=config.limits.turn_calls,
        ),
        recovery=Policy(
            resume=Resume(config.recovery.resume),
            freshness_ms=int(config.recovery.freshness_s * 1000),
            attempts_max=config.recovery.attempts_max,
        ),
        quota=quota_of(config),
        queue_max=config.limits.queued_per_conversation,
        drain_timeout_s=config.drain.timeout_s,
        delivery_expire_s=int(config.delivery.expire_s),
        has_titles=config.sessions.titles,
        idle_reset_ms=int(config.sessions.idle_reset_s * 1000),
        media_bytes=config.limits.media_bytes,
        fetch_wait_s=config.limits.fetch_wait_s,
        answer_wait_ms=int(config.tools.answer_wait_s * 1000),
        notices=NoticeTerms(
            stopping=config.notices.stopping,
            back=config.notices.back,
            still_at_work_s=config.notices.still_at_work_s,
        ),
    )
