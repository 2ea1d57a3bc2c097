"""Lists the deliberate bugs in the web room: who may ask for what, and how much."""

from typing import Final

from tests.mutants.mutant import Mutant

AUDIENCES: Final = "tests/unit/test_audiences.py"
BODIES: Final = "tests/unit/test_bodies.py"
CALLERS: Final = "tests/unit/test_callers.py"
ENDPOINTS: Final = "tests/unit/test_endpoints.py"
HTTP_AND_PEOPLE: Final = "tests/sim/test_http_and_people.py"
MEDIA_HEADERS: Final = "tests/unit/test_media_headers.py"
OPENAI_CHECKS: Final = "tests/unit/test_openai_checks.py"
OUTLET: Final = "tests/unit/test_outlet.py"
BRIDGE: Final = "tests/contract/test_bridge.py"

MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="anybody_names_its_address",
        promise="P13",
        bug="Anybody may say from which address a request comes.",
        file="web/http/callers.py",
        symbol="Callers.address",
        old="if found is None or not self._is_proxy(found):",
        new="if found is None:",
        killed_by=(f"{CALLERS}::test_only_a_trusted_proxy_says_who_is_behind_it",),
    ),
    Mutant(
        name="proxy_taken_for_a_local_caller",
        promise="P13",
        bug="Whoever comes through a proxy on this machine is taken for a local caller.",
        file="web/http/callers.py",
        symbol="Callers.is_local",
        old=" and not self._is_proxy(found)",
        new="",
        killed_by=(f"{CALLERS}::test_a_proxy_on_this_machine_never_asks_for_itself",),
    ),
    Mutant(
        name="foreign_name_accepted",
        promise="P14",
        bug="A page of another site reaches the gateway under a name that only ends like ours.",
        file="web/http/callers.py",
        symbol="Callers.is_meant",
        old='return name == _LOCAL or name.endswith(f".{_LOCAL}") or name in self._hosts',
        new="return name == _LOCAL or name.endswith(_LOCAL) or name in self._hosts",
        killed_by=(f"{CALLERS}::test_a_name_that_nobody_gave_us_is_not_meant",),
    ),
    Mutant(
        name="nesting_without_a_bound",
        promise="P18",
        bug="A body may be nested as deeply as it likes.",
        file="web/http/bodies.py",
        symbol="insist_on_shallow",
        old="    raise too_deep()",
        new="    return",
        killed_by=(f"{BODIES}::test_what_is_nested_too_deeply_is_refused",),
    ),
    Mutant(
        name="form_with_endless_parts",
        promise="P18",
        bug="A form may have any number of parts.",
        file="web/http/forms.py",
        symbol="parts_of",
        old="        if len(parts) == PARTS_MAX:",
        new="        if len(parts) < 0:",
        killed_by=(f"{BODIES}::test_a_hostile_form_is_refused_at_once[parts]",),
    ),
    Mutant(
        name="script_served_as_a_picture",
        promise="P14",
        bug="A file that can run a script is served with its own type.",
        file="web/api/media.py",
        symbol="shown_type",
        old="return plain if _HARMLESS.fullmatch(plain) else UNKNOWN",
        new="return plain",
        killed_by=(f"{MEDIA_HEADERS}::test_only_types_that_run_nowhere_are_told",),
    ),
    Mutant(
        name="members_do_what_operators_may",
        promise="P13",
        bug="Members may do what only operators may do.",
        file="web/endpoints.py",
        symbol="require_operator",
        old="    if not by.is_operator:",
        new="    if not by.id:",
        killed_by=(f"{HTTP_AND_PEOPLE}::test_members_do_nothing_that_is_the_operators",),
    ),
    Mutant(
        name="turns_of_others_readable",
        promise="P12",
        bug="A person reads the turn of another person.",
        file="web/api/native.py",
        symbol="turn",
        old="principal=by.scope",
        new="principal=None",
        killed_by=(f"{HTTP_AND_PEOPLE}::test_nobody_reaches_what_is_anothers",),
    ),
    Mutant(
        name="files_of_others_readable",
        promise="P12",
        bug="A person downloads the file of another person.",
        file="web/api/media.py",
        symbol="MediaApi.get",
        old="principal=request[PRINCIPAL].scope",
        new="principal=None",
        killed_by=(f"{HTTP_AND_PEOPLE}::test_nobody_reaches_what_is_anothers",),
    ),
    Mutant(
        name="files_of_others_attachable",
        promise="P12",
        bug="A person sends the file of another person to a model.",
        file="web/api/native.py",
        symbol="_attachment",
        old="principal=by.scope",
        new="principal=None",
        killed_by=(f"{HTTP_AND_PEOPLE}::test_nobody_attaches_or_continues_what_is_anothers",),
    ),
    Mutant(
        name="revoked_token_remembered",
        promise="P13",
        bug="A token that was used once opens the gateway for ever.",
        file="web/access.py",
        symbol="TokenCheck._look_up",
        old="        if known is not None and now - known[0] < REMEMBERED_S:",
        new="        if known is not None:",
        killed_by=(
            f"{HTTP_AND_PEOPLE}::test_a_token_that_another_process_revoked_opens_nothing_for_long",
        ),
    ),
    Mutant(
        name="internals_in_the_answers",
        promise="P12",
        bug="People read internal errors over HTTP.",
        file="web/audiences.py",
        symbol="as_told",
        old="    if detail and audience is not Audience.OPERATORS:",
        new="    if detail and not audience:",
        killed_by=(f"{AUDIENCES}::test_people_read_no_internals_and_operators_do",),
    ),
    Mutant(
        name="open_call_taken_from_a_caller",
        promise="P5",
        bug="Messages of a caller that leave a tool call without a result are taken.",
        file="web/openai/checks.py",
        symbol="_check_answered",
        old="    if open_calls:",
        new="    if len(open_calls) > 1:",
        killed_by=(f"{OPENAI_CHECKS}::test_what_no_model_takes_is_named",),
    ),
    Mutant(
        name="same_id_in_two_conversations",
        promise="P3",
        bug=(
            "A message is taken for a repetition of one in another conversation "
            "that has the same id."
        ),
        file="web/api/native.py",
        symbol="external_id",
        old='return f"{client_id(given)}\\n{name}"',
        new="return client_id(given)",
        killed_by=(
            f"{HTTP_AND_PEOPLE}::test_the_same_id_in_another_conversation_is_another_message",
        ),
    ),
    Mutant(
        name="frame_of_an_operator_given_to_people",
        promise="P12",
        bug="A frame that was made for operators is given to everybody who watches.",
        file="web/api/events.py",
        symbol="Frames.of",
        old="        key = (id(told), audience)",
        new="        key = (id(told), Audience.OPERATORS)",
        killed_by=(
            f"{AUDIENCES}::test_a_frame_that_was_made_for_operators_is_not_given_to_people",
        ),
    ),
    Mutant(
        name="page_without_a_limit",
        promise="P18",
        bug="A page may be asked for that is as long as everything there is.",
        file="web/endpoints.py",
        symbol="PageLimit",
        old="msgspec.Meta(ge=1, le=1000)",
        new="msgspec.Meta(ge=1)",
        killed_by=(
            (
                f"{ENDPOINTS}"
                "::TestEveryEndpoint::test_takes_texts_and_bounded_numbers_that_may_be_left_out"
            ),
        ),
    ),
    Mutant(
        name="slow_reader_holds_a_whole_page",
        promise="P24",
        bug="A reader who takes nothing makes the gateway hold everything that it was sent.",
        file="web/http/outlet.py",
        symbol="Outlet.__init__",
        old="set_write_buffer_limits(high=0)",
        new="set_write_buffer_limits(high=100_000_000)",
        killed_by=(f"{OUTLET}::test_a_stream_that_nobody_reads_is_ended",),
    ),
    Mutant(
        name="frames_kept_for_ever",
        promise="P18",
        bug="Every frame that was ever sent is kept in memory.",
        file="web/api/events.py",
        symbol="Frames._keep",
        old="len(self._kept) > FRAMES_MAX or",
        new="len(self._kept) < 0 or",
        killed_by=(f"{AUDIENCES}::test_only_so_many_frames_are_kept",),
    ),
    Mutant(
        name="call_of_one_session_given_to_another",
        promise="P12",
        bug="A call over the bridge lands in the session that was opened last.",
        file="web/bridge/bindings.py",
        symbol="BindingBook.find",
        old="return self._by_digest.get(_digest(token))",
        new="return self.all()[-1] if token else None",
        killed_by=(f"{BRIDGE}::test_a_call_lands_in_its_own_binding",),
    ),
    Mutant(
        name="bridge_called_by_a_page",
        promise="P12",
        bug="A page in a browser that has learnt a secret can call an agent's tools.",
        file="web/bridge/bridge.py",
        symbol="ToolBridge._refusal",
        old='"Origin" in request.headers or ',
        new="",
        killed_by=(f"{BRIDGE}::test_only_who_has_the_secret_is_served",),
    ),
)
