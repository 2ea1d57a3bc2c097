"""Checks the `Principals` and `MediaLibrary` ports."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from itertools import cycle, islice
from pathlib import Path

import pytest

from perdure.domain.errors import Conflict, NotFound, Transient
from perdure.domain.ids import MediaId, PrincipalId
from perdure.ports.records.history import Page
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]


async def test_a_principal_is_made_once(peers: list[Store]) -> None:
    made = await asyncio.gather(
        *(each.principals.ensure("carol", role="member") for each in islice(cycle(peers), 8))
    )

    assert len({principal.id for principal in made}) == 1
    assert (made[0].name, made[0].role, made[0].scope) == ("carol", "member", made[0].id)


async def test_operators_see_everything(store: Store) -> None:
    operator = await store.principals.ensure("root", role="operator")

    assert operator.is_operator
    assert operator.scope is None


async def test_a_role_is_not_changed_by_asking_again(store: Store) -> None:
    await store.principals.ensure("carol", role="member")

    again = await store.principals.ensure("carol", role="operator")

    assert not again.is_operator


async def test_an_unknown_role_is_refused(store: Store) -> None:
    with pytest.raises(Conflict):
        await store.principals.ensure("carol", role="emperor")


async def test_a_token_stands_for_its_principal(store: Store, restart: OpenStore) -> None:
    carol = await store.principals.ensure("carol", role="member")
    granted = await store.principals.grant(carol.id, "token-of-carol")

    assert await store.principals.by_token("token-of-carol") == carol
    assert await store.principals.by_token("token-of-Carol") is None
    assert await store.principals.by_token("") is None
    store = await restart()
    assert await store.principals.by_token("token-of-carol") == carol
    assert await store.principals.tokens() == [granted]


async def test_tokens_come_in_pages_the_oldest_first(store: Store, clock: VirtualClock) -> None:
    carol = await store.principals.ensure("carol", role="member")
    granted = []
    for number in range(5):
        clock.advance(number % 2)
        granted.append(await store.principals.grant(carol.id, f"token {number}"))
    in_order = sorted(granted, key=lambda view: (view.created_at, view.id))

    first = await store.principals.tokens(Page(limit=3))
    rest = await store.principals.tokens(Page(limit=3, after=(first[-1].created_at, first[-1].id)))

    assert [len(first), len(rest)] == [3, 2]
    assert [*first, *rest] == in_order == await store.principals.tokens()


async def test_a_token_is_revoked_by_its_name_too(store: Store, clock: VirtualClock) -> None:
    carol = await store.principals.ensure("carol", role="member")
    first = await store.principals.grant(carol.id, "one")
    clock.advance(1)
    second = await store.principals.grant(carol.id, "two")

    with pytest.raises(Conflict, match=f"carol has 2 valid tokens.*{first.id}") as ambiguous:
        await store.principals.revoke("carol")
    assert ambiguous.value.code == "ambiguous_token"
    assert second.id in ambiguous.value.message
    assert await store.principals.by_token("one") == await store.principals.by_token("two") == carol

    assert (await store.principals.revoke(first.id)).id == first.id
    assert (await store.principals.revoke("carol")).id == second.id
    assert await store.principals.by_token("two") is None
    assert (await store.principals.revoke("carol")).revoked_at is not None
    with pytest.raises(NotFound, match="no token has the id or the name dave"):
        await store.principals.revoke("dave")


async def test_the_same_token_again_is_the_same_grant(store: Store) -> None:
    carol = await store.principals.ensure("carol", role="member")

    first = await store.principals.grant(carol.id, "t")

    assert await store.principals.grant(carol.id, "t") == first


async def test_a_token_of_anothers_is_not_granted_twice(store: Store) -> None:
    carol = await store.principals.ensure("carol", role="member")
    dave = await store.principals.ensure("dave", role="operator")
    await store.principals.grant(carol.id, "t")

    with pytest.raises(Conflict):
        await store.principals.grant(dave.id, "t")

    assert await store.principals.by_token("t") == carol


async def test_a_token_for_nobody_is_refused(store: Store) -> None:
    with pytest.raises(Conflict):
        await store.principals.grant(PrincipalId("prn_nobody"), "t")


async def test_a_revoked_token_opens_nothing(store: Store) -> None:
    carol = await store.principals.ensure("carol", role="member")
    granted = await store.principals.grant(carol.id, "t")
    await store.principals.grant(carol.id, "other")

    revoked = await store.principals.revoke(granted.id)

    assert revoked.revoked_at is not None
    assert await store.principals.by_token("t") is None
    assert await store.principals.by_token("other") == carol
    assert (await store.principals.revoke(granted.id)).revoked_at == revoked.revoked_at
    with pytest.raises(NotFound):
        await store.principals.revoke("tok_nobody")


async def test_the_last_token_that_opens_for_an_operator_stays(store: Store) -> None:
    root = await store.principals.ensure("root", role="operator")
    first = await store.principals.grant(root.id, "first")
    second = await store.principals.grant(root.id, "second")
    await store.principals.revoke(first.id)

    with pytest.raises(Conflict) as refused:
        await store.principals.revoke(second.id)

    assert refused.value.code == "last_operator_token"
    assert await store.principals.by_token("second") is not None


async def test_no_token_is_written_down(store: Store, tmp_path: Path) -> None:
    carol = await store.principals.ensure("carol", role="member")
    await store.principals.grant(carol.id, "canary-7f3a")
    await store.close()

    assert [path for path in files(tmp_path) if b"canary-7f3a" in path.read_bytes()] == []


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_a_file_is_kept_with_its_bytes(store: Store, ada: Person, restart: OpenStore) -> None:
    data = bytes(range(256)) * 100

    stored = await store.media.put(data, mime="image/png", name="a.png", principal=ada.id)

    assert (stored.size, stored.digest) == (len(data), hashlib.sha256(data).hexdigest())
    store = await restart()
    assert await store.media.get(stored.id, principal=ada.id) == stored
    assert await store.media.read(stored.id) == data


async def test_the_same_bytes_are_kept_once(
    store: Store, ada: Person, bob: Person, tmp_path: Path
) -> None:
    stored = [
        await store.media.put(b"same", mime="text/plain", name=f"{who.id}", principal=who.id)
        for who in (ada, bob, ada)
    ]

    assert len({each.id for each in stored}) == 2  # one file per owner, however often it is stored
    assert len(files(tmp_path / "media")) == 1


async def test_many_uploads_of_one_file_at_once_all_succeed(
    peers: list[Store], ada: Person
) -> None:
    data = b"x" * 100_000

    stored = await asyncio.gather(
        *(
            each.media.put(data, mime="", name="x", principal=ada.id)
            for each in islice(cycle(peers), 8)
        )
    )

    assert all([await peers[0].media.read(each.id) == data for each in stored])


async def test_a_file_is_its_owners(store: Store, ada: Person, bob: Person) -> None:
    stored = await store.media.put(b"mine", mime="", name="", principal=ada.id)

    with pytest.raises(NotFound):
        await store.media.get(stored.id, principal=bob.id)
    with pytest.raises(NotFound):
        await store.media.read(MediaId("med_nobody"))
    assert await store.media.get(stored.id, principal=None) == stored


async def test_the_same_file_of_another_person_is_another_file(
    store: Store, ada: Person, bob: Person
) -> None:
    mine, theirs = [
        await store.media.put(b"same", mime="text/plain", name="a.txt", principal=each.id)
        for each in (ada, bob)
    ]

    assert mine.id != theirs.id
    assert (await store.media.get(theirs.id, principal=bob.id)).name == "a.txt"
    with pytest.raises(NotFound):
        await store.media.get(theirs.id, principal=ada.id)


async def test_an_empty_file_is_a_file(store: Store, ada: Person) -> None:
    stored = await store.media.put(b"", mime="", name="", principal=ada.id)

    assert await store.media.read(stored.id) == b""


async def test_a_folder_that_takes_nothing_is_said_so(
    store: Store, ada: Person, tmp_path: Path
) -> None:
    (tmp_path / "media").write_text("a file where the folder should be")

    with pytest.raises(Transient, match="media is no folder; move it away") as refused:
        await store.media.put(b"data", mime="", name="", principal=ada.id)
    assert refused.value.code == "not_writable"


async def test_a_revoked_token_that_is_granted_again_opens(store: Store) -> None:
    # It is the token of the home: whoever has the file is let in again after a restart.
    root = await store.principals.ensure("root", role="operator")
    await store.principals.grant(root.id, "other")
    home = await store.principals.grant(root.id, "home")
    await store.principals.revoke(home.id)

    await store.principals.grant(root.id, "home")

    assert await store.principals.by_token("home") == root


async def test_a_token_of_a_member_does_not_stand_in_for_an_operators(store: Store) -> None:
    root = await store.principals.ensure("root", role="operator")
    carol = await store.principals.ensure("carol", role="member")
    last = await store.principals.grant(root.id, "last")
    await store.principals.grant(carol.id, "a member's")

    with pytest.raises(Conflict):
        await store.principals.revoke(last.id)
