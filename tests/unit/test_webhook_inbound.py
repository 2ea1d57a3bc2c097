"""Checks what a webhook request becomes: its text, its conversation, and the settings behind
them."""

import re
import textwrap
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure.adapters.webhook.inbound import arrival_of, message_of
from perdure.adapters.webhook.manifest import MANIFEST, Route, WebhookSettings
from perdure.adapters.webhook.template import Payload, filled
from perdure.app.config.toml_positions import Positions
from perdure.app.config.toml_reading import TomlReader, TomlSource
from perdure.domain.errors import Rejected
from perdure.domain.inbound.arrivals import Arrival, PlaceKind
from perdure.domain.people.access import AccessRules, AccessVerdict, decide
from perdure.domain.secret import Secret

BODY = b"""{"issue": {"id": 17, "title": "It {body} leaks", "labels": [{"name": "bug"}, "new"],
            "body": null, "open": true}, "a b": "spaced", "empty": ""}"""
HEADERS = {"x-github-event": "issues"}
SECRETS = (Secret("whsec_x"),)


def arrival(body: bytes = BODY, *, prompt: str = "", conversation: str = "each") -> Arrival:
    route = Route(secrets=SECRETS, prompt=prompt, conversation=conversation)
    return arrival_of("issues", route, message="msg_1", payload=Payload(body, HEADERS))


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{json.issue.title}", "It {body} leaks"),
        ("#{json.issue.id} {json.issue.labels.0.name}", "#17 bug"),
        ("{json.issue.labels}", '[{"name":"bug"},"new"]'),
        ("{json.issue.body} {json.issue.open} {json.a b}", "null true spaced"),
        ("{headers.X-GitHub-Event}", "issues"),
        ("{{body}} {{{json.issue.id}}}", "{body} {17}"),
        ("<{json.empty}>", "<>"),
        ("nothing to fill in", "nothing to fill in"),
    ],
)
def test_a_template_is_filled_once(template: str, text: str) -> None:
    assert filled(template, Payload(BODY, HEADERS)) == text


def test_the_body_is_filled_in_as_it_came() -> None:
    assert filled("<{body}>", Payload(b'{"a":\t1}', {})) == '<{"a":\t1}>'


@pytest.mark.parametrize(
    ("template", "body", "code", "words"),
    [
        ("{json.issue.nobody}", BODY, "invalid_body", "field issue.nobody"),
        ("{json.issue.title.length}", BODY, "invalid_body", "field issue.title.length"),
        ("{json.issue.labels.2}", BODY, "invalid_body", "field issue.labels.2"),
        ("{json.issue.labels.-1}", BODY, "invalid_body", "field issue.labels.-1"),
        ("{json.a}", b"[1]", "invalid_body", "field a"),
        ("{json.a}", b"plain text", "malformed_json", "not JSON"),
        ("{json.a}", b'{"a": "\xff"}', "malformed_json", "not JSON"),
        ("{json.a}", b"", "malformed_json", "not JSON"),
        ("{json.a}", b"[" * 100_000, "malformed_json", "nested too deeply"),
        ("{headers.x-nothing}", BODY, "invalid_body", "header x-nothing"),
        ("{body}", b"\xff", "invalid_body", "not UTF-8"),
    ],
)
def test_what_a_template_misses_is_named(template: str, body: bytes, code: str, words: str) -> None:
    with pytest.raises(Rejected, match=words) as refusal:
        filled(template, Payload(body, HEADERS))
    assert refusal.value.code == code


def test_without_a_prompt_the_body_is_the_message() -> None:
    taken = arrival("Grüße, 世界".encode())
    assert taken.text == "Grüße, 世界"
    assert (taken.place, taken.thread, taken.external_id) == ("issues", "msg_1", "issues/msg_1")
    assert taken.sender.id == "webhook:issues"
    assert taken.place_kind is PlaceKind.PRIVATE
    assert message_of(taken.external_id) == "msg_1"


def test_an_id_may_hold_slashes() -> None:
    route = Route(secrets=SECRETS)
    taken = arrival_of("issues", route, message="a/b", payload=Payload(b"hello", {}))
    assert (taken.external_id, message_of(taken.external_id)) == ("issues/a/b", "a/b")


@pytest.mark.parametrize(
    ("conversation", "thread"),
    [("each", "msg_1"), ("one", ""), ("{json.issue.id}", "17"), ("i-{json.issue.id}", "i-17")],
)
def test_the_route_says_what_belongs_together(conversation: str, thread: str) -> None:
    assert arrival(conversation=conversation).thread == thread


@pytest.mark.parametrize(
    ("body", "words"),
    [(b'{"id": " "}', "not 0"), (b'{"id": "%s"}' % (b"x" * 201), "not 201")],
)
def test_a_conversation_has_a_name_of_some_length(body: bytes, words: str) -> None:
    with pytest.raises(Rejected, match=words) as refusal:
        arrival(body, conversation="{json.id}")
    assert refusal.value.code == "invalid_body"


def test_there_must_be_something_to_say() -> None:
    for body, prompt in [(b"", ""), (b" \n", ""), (b'{"a": ""}', "{json.a}")]:
        with pytest.raises(Rejected, match="no text") as refusal:
            arrival(body, prompt=prompt)
        assert refusal.value.code == "empty_message"


def test_no_store_is_given_what_it_cannot_hold() -> None:
    taken = arrival(b'{"a": "x\\u0000y"}', prompt="{json.a}", conversation="{json.a}")
    assert (taken.text, taken.thread) == ("x\ufffdy", "x\ufffdy")


@pytest.mark.parametrize(
    ("prompt", "body", "text"),
    [
        ("{json.a}", b'{"a": "/agent other"}', "\\/agent other"),
        ("{json.a}", b'{"a": " /stop"}', "\\/stop"),
        ("Look: {json.a}", b'{"a": "/stop"}', "Look: /stop"),
        ("/background {json.a}", b'{"a": "look"}', "/background look"),
        ("", b"/stop", "/stop"),
    ],
)
def test_only_whoever_signs_or_configures_gives_commands(
    prompt: str, body: bytes, text: str
) -> None:
    assert arrival(body, prompt=prompt).text == text


def read(text: str, **environ: str) -> tuple[WebhookSettings | None, list[str]]:
    source = TomlSource(file=Path("perdure.toml"), positions=Positions(text), environ=environ)
    reader = TomlReader(source)
    document: Mapping[str, Mapping[str, object]] = tomllib.loads(text)
    path = ("adapters", "webhook")
    settings = reader.table(WebhookSettings, document["adapters"]["webhook"], path)
    return settings, [str(problem) for problem in reader.problems]


def test_the_section_is_read_and_its_routes_may_speak() -> None:
    settings, problems = read(
        """[adapters.webhook.routes.issues]
        secrets = [{ env = "HOOK" }, "whsec_old"]
        agent = "triage"
        prompt = "A new issue: {json.issue.title}"
        conversation = "{json.issue.id}"
        callback = "https://example.com/answers"
        callback_secret = "whsec_out"
        """,
        HOOK="whsec_new",
    )
    assert problems == []
    assert settings is not None
    route = settings.routes["issues"]
    assert route.secrets == (Secret("whsec_new"), Secret("whsec_old"))
    assert (settings.busy, settings.stream) == ("queue", False)
    taken = arrival()
    rules = AccessRules(allow=frozenset(settings.allow))
    assert decide(rules, taken, is_paired=False, is_engaged=False) is AccessVerdict.WELCOME
    assert decide(AccessRules(), taken, is_paired=False, is_engaged=False) is AccessVerdict.STRANGER
    assert MANIFEST.settings is WebhookSettings


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("", "[adapters.webhook] routes.x needs secrets"),
        ("secrets = []", "[adapters.webhook] routes.x.secrets must be a list of at least one"),
        ('secrets = [{ env = "NO" }]', "[adapters.webhook] routes.x.secrets[0] is read from"),
        ('secrets = ["s"]\nprompt = "{title}"', "routes.x.prompt must be text whose braces are"),
        ('secrets = ["s"]\nprompt = "a } b"', "routes.x.prompt must be text whose braces are"),
        ('secrets = ["s"]\nconversation = "all"', 'routes.x.conversation must be "each", "one"'),
        ('secrets = ["s"]\ncallback = "example.com"', "routes.x.callback must be an address"),
        ('secrets = ["s"]\npreset = "gitea"', 'routes.x.preset must be one of "standard"'),
        ('secrets = ["s"]\nsecret = "s"', 'unknown key "secret" in [adapters.webhook] routes.x'),
    ],
)
def test_a_mistake_in_the_section_is_pointed_at(lines: str, complaint: str) -> None:
    _, problems = read(f"[adapters.webhook.routes.x]\n{lines}\n")
    assert len(problems) == 1
    assert complaint in problems[0]


def test_the_page_for_operators_is_right() -> None:
    page = (Path(__file__).parents[2] / "docs" / "adapters" / "webhook.md").read_text()
    (example,) = re.findall(r"^ +```toml\n(.*?)^ +```$", page, re.MULTILINE | re.DOTALL)
    settings, problems = read(textwrap.dedent(example))
    assert problems == []
    assert settings is not None
    (route,) = settings.routes.values()
    taken = arrival_of("issues", route, message="m", payload=Payload(BODY, {}))
    assert (taken.thread, taken.text.splitlines()) == (
        "17",
        ["A new issue: It {body} leaks. Suggest a label."],
    )
    _, _, keys = page.partition("## A route's keys")
    listed = re.findall(r"^\| `(\w+)` \|", keys.partition("\n## ")[0], re.MULTILINE)
    assert sorted(listed) == sorted(Route.__struct_fields__)
