"""Keeps the browsers that people want to be notified on, and what they must be told.

A notification is a row, written in the transaction of the fact that it is about, by one statement
that writes nothing for people without browsers. It is due a moment later: by then a page that shows
the conversation has said that it was seen (`shelves.py`), and nothing is sent.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from perdure.domain.errors import NotFound
from perdure.domain.ids import ConversationId, PrincipalId, QuestionId, SubscriptionId, TurnId
from perdure.domain.kinds import ERRANDS
from perdure.domain.outcomes import Outcome
from perdure.ports.delivery.pushes import DuePushes, Push, PushKind, PushSubscription, PushTarget
from perdure.store.drivers.dialect import Dialect
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.operations.sessions.scopes import SHARED
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, SqlValue, listed, many, one, run, sql_list

# How long a page has time to say that somebody looks at it.
LOOKS_MS: Final = 2_000
# How long something is worth telling. Push services get the same limit.
KEPT_MS: Final = 86_400_000
# How many browsers a person may have.
BROWSERS_MAX: Final = 10
_VAPID: Final = "vapid"
# Who stops a turn, or goes on without it, knows that it has ended.
_TOLD: Final = (Outcome.DONE, Outcome.FAILED, Outcome.REFUSED, Outcome.SUSPENDED)
_COLUMNS: Final = "subscription_id, conversation_id, kind, subject_id, at, due_at, node_id"
# The tables in which the browsers of those are found in whose list the conversation of session `s`
# is, by itself or because theirs is linked to it.
_BROWSERS: Final = """
    JOIN conversations c ON (c.id = s.conversation_id AND c.linked_id IS NULL)
                            OR c.linked_id = s.conversation_id
    JOIN push_subscriptions p ON p.principal_id = c.principal_id"""
_IN_LIST: Final = f"c.is_listed = 1 AND c.hidden_at IS NULL AND NOT {SHARED}"
_NEWEST: Final = """
    ON CONFLICT (subscription_id, conversation_id) DO UPDATE
    SET kind = excluded.kind, subject_id = excluded.subject_id, at = excluded.at,
        due_at = excluded.due_at, node_id = NULL"""
# Writes that a turn's person is to be told of its end.
_SETTLED: Final = f"""
    INSERT INTO pushes ({_COLUMNS})
    SELECT p.id, c.id,
           CASE WHEN t.outcome = '{Outcome.DONE}' THEN '{PushKind.ANSWER}'
                ELSE '{PushKind.FAILURE}' END,
           t.id, t.settled_at,
           CASE WHEN p.rests_until > t.settled_at + {LOOKS_MS} THEN p.rests_until
                ELSE t.settled_at + {LOOKS_MS} END, NULL
    FROM turns t JOIN sessions s ON s.id = t.session_id {_BROWSERS}
    WHERE t.id = $1 AND t.kind NOT IN {sql_list(ERRANDS)} AND t.outcome IN {sql_list(_TOLD)}
      AND {_IN_LIST} {_NEWEST}"""
# Writes that a person is to be told of a question.
_ASKED: Final = f"""
    INSERT INTO pushes ({_COLUMNS})
    SELECT p.id, c.id, q.kind, q.id, q.asked_at,
           CASE WHEN p.rests_until > q.asked_at + {LOOKS_MS} THEN p.rests_until
                ELSE q.asked_at + {LOOKS_MS} END, NULL
    FROM questions q JOIN sessions s ON s.id = q.session_id {_BROWSERS}
    WHERE q.id = $1 AND {_IN_LIST} {_NEWEST}"""
# Keeps the key, unless there is one.
_KEEP_KEY: Final = """
    INSERT INTO push_keys (purpose, secret) VALUES ($1, $2) ON CONFLICT (purpose) DO NOTHING"""
# Reads the key.
_KEY: Final = "SELECT secret FROM push_keys WHERE purpose = $1"
# Keeps a browser. A known one belongs to whoever uses it now.
_SUBSCRIBE: Final = """
    INSERT INTO push_subscriptions
        (id, principal_id, endpoint, p256dh, auth, made_at, failures, rests_until)
    VALUES ($1, $2, $3, $4, $5, $6, 0, 0)
    ON CONFLICT (endpoint) DO UPDATE
    SET principal_id = excluded.principal_id, p256dh = excluded.p256dh, auth = excluded.auth,
        made_at = excluded.made_at, failures = 0, rests_until = 0"""
# Reads browsers; the caller appends which.
_SUBSCRIPTIONS: Final = """
    SELECT p.id, p.principal_id, p.endpoint, p.p256dh, p.auth, p.made_at, p.failures
    FROM push_subscriptions p """
# Reads the browser with an address.
_AT: Final = _SUBSCRIPTIONS + "WHERE p.endpoint = $1"
# Reads the browsers of a person.
_OF: Final = _SUBSCRIPTIONS + "WHERE p.principal_id = $1 ORDER BY p.made_at, p.id"
# Forgets a browser.
_FORGET: Final = "DELETE FROM push_subscriptions WHERE id = $1"
# Deletes what a browser was to be told.
_SILENCE: Final = "DELETE FROM pushes WHERE subscription_id = $1"
# Finds the oldest notifications that no other living node is sending, each with whether it is still
# worth telling.
_DUE: Final = f"""
    SELECT p.id, p.principal_id, p.endpoint, p.p256dh, p.auth, p.made_at, p.failures,
           u.conversation_id, u.kind, u.subject_id, u.at, {ADDRESS}, s.title,
           CASE WHEN u.at < $1 OR c.seen_at >= u.at OR c.hidden_at IS NOT NULL
                     OR EXISTS (SELECT 1 FROM questions q
                                WHERE q.id = u.subject_id AND q.state <> 'pending')
                THEN 1 ELSE 0 END
    FROM pushes u JOIN push_subscriptions p ON p.id = u.subscription_id
    JOIN conversations c ON c.id = u.conversation_id
    JOIN conversations w ON w.id = COALESCE(c.linked_id, c.id)
    JOIN sessions s ON s.id = w.session_id
    WHERE u.due_at <= $2
      AND (u.node_id IS NULL OR u.node_id = $3 OR NOT EXISTS (
               SELECT 1 FROM nodes n WHERE n.id = u.node_id AND n.left_at IS NULL
                  AND n.lease_until > {{now_ms}}))"""
_IN_ORDER: Final = """
    ORDER BY u.due_at, u.subscription_id, u.conversation_id LIMIT """
_SKIPPING: Final = " FOR UPDATE OF u SKIP LOCKED"
# Finds when the next notification is due.
_NEXT: Final = "SELECT MIN(due_at) FROM pushes"
_THIS: Final = "subscription_id = $1 AND conversation_id = $2 AND subject_id = $3 AND at = $4"
# Deletes a notification, unless a newer one has taken its place.
_DELETE: Final = f"DELETE FROM pushes WHERE {_THIS}"
# Marks a notification as being sent by a node.
_TAKE: Final = """
    UPDATE pushes SET node_id = $1 WHERE subscription_id = $2 AND conversation_id = $3"""
# Records that a push service works.
_WORKS: Final = "UPDATE push_subscriptions SET failures = 0 WHERE id = $1 AND failures > 0"
# Leaves a push service alone.
_REST: Final = """
    UPDATE push_subscriptions SET failures = failures + 1, rests_until = $1 WHERE id = $2"""
# Lets everything wait that a browser is to be told.
_WAIT: Final = "UPDATE pushes SET due_at = $1, node_id = NULL WHERE subscription_id = $2"


class _Browser(NamedTuple):
    """Holds a browser."""

    subscription: SubscriptionId
    principal: PrincipalId
    endpoint: str
    p256dh: str
    auth: str
    made_at: int
    failures: int


class _Due(NamedTuple):
    """Holds a notification that is due, with its browser and its conversation."""

    subscription: SubscriptionId
    principal: PrincipalId
    endpoint: str
    p256dh: str
    auth: str
    made_at: int
    failures: int
    conversation: ConversationId
    kind: str
    subject: str
    at: int
    platform: str
    account: str
    place: str
    thread: str
    person: str
    title: str
    is_stale: int


class _Next(NamedTuple):
    at: int | None


def settled(turn: TurnId) -> Op[None]:
    """Write down that a turn's end is to be told. Call it after the turn's row says so."""
    yield from run(_SETTLED, turn)


def asked(question: QuestionId) -> Op[None]:
    """Write down that a question is to be told. Call it after the question's row is there."""
    yield from run(_ASKED, question)


def key(candidate: str) -> Op[str]:
    """Return the key that notifications are signed with, which is `candidate` if there was
    none."""
    yield from run(_KEEP_KEY, _VAPID, candidate)
    found = yield from known_key()
    assert found is not None
    return found


def known_key() -> Op[str | None]:
    """Return the key that notifications are signed with, or None."""
    return (yield from one(str, _KEY, _VAPID))


def subscribe(principal: PrincipalId, target: PushTarget, stamp: Stamp) -> Op[PushSubscription]:
    """Keep a browser of a person. What it was to be told for somebody else is deleted."""
    new = stamp.mint("psh")
    yield from run(
        _SUBSCRIBE, new, principal, target.endpoint, target.p256dh, target.auth, stamp.at
    )
    found = yield from one(_Browser, _AT, target.endpoint)
    assert found is not None
    yield from run(_SILENCE, found.subscription)
    everything = yield from of(principal)
    for each in everything[: max(len(everything) - BROWSERS_MAX, 0)]:
        yield from gone(each.id)
    return _subscription(found)


def of(principal: PrincipalId) -> Op[list[PushSubscription]]:
    """Return the browsers of a person, the oldest first."""
    return [_subscription(each) for each in (yield from many(_Browser, _OF, principal))]


def unsubscribe(principal: PrincipalId, which: SubscriptionId) -> Op[None]:
    """Forget a browser of a person. Raises `NotFound`."""
    if which not in {each.id for each in (yield from of(principal))}:
        raise NotFound(f"you have no subscription {which}; `GET /api/push` lists yours")
    yield from gone(which)


def unsubscribe_all(principal: PrincipalId) -> Op[None]:
    """Forget all browsers of a person, one of whose tokens has ended: nobody knows which of them
    used it. A page that still has a token subscribes again."""
    for each in (yield from of(principal)):
        yield from gone(each.id)


def gone(which: SubscriptionId) -> Op[None]:
    """Forget a browser, and what it was to be told."""
    yield from run(_FORGET, which)
    yield from run(_SILENCE, which)


def next_ms() -> Op[int | None]:
    """Return when the next notification is due, or None."""
    found = yield from one(_Next, _NEXT)
    return found.at if found else None


def take(
    dialect: Dialect, stamp: Stamp, *, limit: int, but: Collection[PrincipalId]
) -> Op[DuePushes]:
    """Take notifications that are due, at most one of each person. Those that are not worth telling
    any more are deleted."""
    others = sorted(but)
    sql = _DUE.format(now_ms=dialect.now_ms)
    if others:
        sql += f" AND p.principal_id NOT IN {listed(4, len(others))}"
    sql += f"{_IN_ORDER}${4 + len(others)}{_SKIPPING}"
    values: tuple[SqlValue, ...] = (stamp.at - KEPT_MS, stamp.at, stamp.node, *others, limit)
    taken: dict[PrincipalId, Push] = {}
    for each in (yield from many(_Due, sql, *values)):
        if each.is_stale:
            yield from arrived(_push(each))
        elif each.principal not in taken:
            taken[each.principal] = _push(each)
            yield from run(_TAKE, stamp.node, each.subscription, each.conversation)
    return DuePushes(taken=tuple(taken.values()), next_ms=(yield from next_ms()))


def arrived(push: Push) -> Op[None]:
    """Delete a notification, unless a newer one has taken its place."""
    which = push.subscription.id
    yield from run(_DELETE, which, push.conversation_id, push.subject, push.at)
    if push.subscription.failures:
        yield from run(_WORKS, which)


def rest(push: Push, *, until_ms: int) -> Op[None]:
    """Leave the push service of a browser alone until then."""
    yield from run(_REST, until_ms, push.subscription.id)
    yield from run(_WAIT, until_ms, push.subscription.id)


def _push(due: _Due) -> Push:
    address = address_of(due.platform, due.account, due.place, due.thread, due.person)
    return Push(
        subscription=_subscription(due),
        conversation_id=due.conversation,
        conversation=address.name,
        title=due.title,
        kind=PushKind(due.kind),
        subject=due.subject,
        at=due.at,
    )


def _subscription(row: _Browser | _Due) -> PushSubscription:
    """Return the browser that these columns hold."""
    return PushSubscription(
        id=row.subscription,
        principal=row.principal,
        target=PushTarget(endpoint=row.endpoint, p256dh=row.p256dh, auth=row.auth),
        made_at=row.made_at,
        failures=row.failures,
    )
