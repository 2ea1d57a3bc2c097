"""Implements `perdure approvals`: lists what agents ask for, and allows or denies it."""

from typing import Final

from perdure.cli.printing import clean, print_json, when
from perdure.cli.tables import print_table
from perdure.cli.target import CommandTarget, EndpointAnswerer, answering
from perdure.domain.journal.records import QuestionView
from perdure.domain.tools.asking import SHORT
from perdure.web import wire
from perdure.web.ops import approvals

_ID: Final = "qst_"
_LOOKED_AT: Final = 1000


async def list_approvals(
    target: CommandTarget, *, limit: int, after: str | None, has_all: bool
) -> None:
    """Print the questions that wait for an answer, or all of them."""
    state = "all" if has_all else "pending"
    async with answering(target) as answers:
        found = await answers.ask(approvals.approvals, limit=limit, cursor=after, state=state)
    if target.is_json:
        print_json(found)
    elif not found.approvals:
        print("nothing waits for an answer")
    else:
        rows = [
            [each.id, each.conversation, each.tool, each.state, _until(each), each.arguments]
            for each in found.approvals
        ]
        print_table(["ID", "IN", "TOOL", "STATE", "UNTIL", "ARGUMENTS"], rows)
        if found.next:
            print(f"more with: perdure approvals list --after {found.next}")


async def _whole(answers: EndpointAnswerer, named: str) -> str:
    """Return the id of the question that is named by its id, or by the end of it as in a
    conversation."""
    if named.startswith(_ID) or len(named) < SHORT:
        return named
    found = await answers.ask(approvals.approvals, limit=_LOOKED_AT)
    meant = [each.id for each in found.approvals if each.id.endswith(named.lower())]
    return meant[0] if len(meant) == 1 else named


async def show(target: CommandTarget, *, question: str) -> None:
    """Print one question with its exact arguments."""
    async with answering(target) as answers:
        found = await answers.ask(approvals.approval, await _whole(answers, question))
    if target.is_json:
        print_json(found)
        return
    print(clean(f"{found.id}  {found.kind} in {found.conversation}, {found.state}"))
    print(clean(f"  tool   {found.tool}"))
    print(f"  turn   {found.turn} (perdure explain shows all of it)")
    print(f"  until  {_until(found)}")
    if found.grants:
        print(clean(f"  covers {found.grants} (with --session, --forever or --for)"))
    if found.answered_by:
        print(clean(f"  answer {found.answer} by {found.answered_by}"))
    print(f"\n{clean(found.arguments)}")
    if found.kind == "question":
        print(f"\n{clean(found.text)}")


async def answer(
    target: CommandTarget,
    *,
    question: str,
    word: str,
    scope: str | None = None,
    for_s: float | None = None,
) -> None:
    """Give the answer to a question."""
    body = wire.AnswerIn(answer=word, scope=scope, for_s=for_s)
    async with answering(target) as answers:
        which = await _whole(answers, question)
        found = await answers.ask(approvals.answer, which, body=body)
    if target.is_json:
        print_json(found)
    else:
        print(clean(f"{found.id} is {found.state}"))


def _until(each: QuestionView) -> str:
    return when(each.deadline) if each.deadline else "answered"
