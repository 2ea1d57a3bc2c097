"""Lists the deliberate bugs in the agents room: what a model said, and whether it had finished."""

from typing import Final

from tests.mutants.mutant import Mutant

AGENTS: Final = "tests/contract/test_agents.py"
CHAT_TRANSLATE: Final = "tests/unit/test_chat_translate.py"
CHAT_THOUGHTS: Final = "tests/unit/test_chat_thoughts.py"
CHAT_WIRE: Final = "tests/fault/test_chat_wire.py"
OUTGOING: Final = "tests/contract/test_outgoing.py"
SSE_FRAGMENTS: Final = "tests/property/test_sse_fragments.py"
THOUGHTS: Final = "tests/property/test_thoughts.py"

MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="thoughts_given_to_another_model",
        promise="P5",
        bug="An agent that stands in gets the signed thoughts of another model, and refuses them.",
        file="agents/chat/reasoning/efforts.py",
        symbol="_is_foreign",
        old="isinstance(block, ThoughtBlock) and block.thinker != thinker",
        new="isinstance(block, ThoughtBlock) and not block.thinker",
        killed_by=(f"{CHAT_THOUGHTS}::test_a_model_gets_no_thoughts_of_another",),
    ),
    Mutant(
        name="end_of_stream_taken_for_a_finish",
        promise="P4",
        bug="A stream that ends without its finish marker is taken for a whole answer.",
        file="agents/chat/openai/stream.py",
        symbol="read",
        old=("        answer.is_over = True\n        return"),
        new=(
            '        answer.finished(StopReason.STOP, said="stop")\n'
            "        answer.is_over = True\n"
            "        return"
        ),
        killed_by=(f"{CHAT_TRANSLATE}::test_each_finish_reason_of_openai_has_its_meaning",),
    ),
    Mutant(
        name="message_stop_taken_for_a_finish",
        promise="P4",
        bug="The end of a message is taken for a finish although no reason to stop was given.",
        file="agents/chat/anthropic/stream.py",
        symbol="read",
        old="        answer.is_over = True",
        new='        answer.finished(StopReason.STOP, said="end_turn")',
        killed_by=(f"{CHAT_TRANSLATE}::test_the_end_of_a_message_without_a_reason_is_no_finish",),
    ),
    Mutant(
        name="cut_answer_without_a_failure",
        promise="P4",
        bug="A stream that was cut after its first words has no failure.",
        file="agents/chat/exchange.py",
        symbol="Exchange.ending",
        old="        if answer.finish is not None:",
        new="        if answer.finish is not None or answer.has_begun:",
        killed_by=(f"{AGENTS}::test_a_cut_stream_is_no_finish",),
    ),
    Mutant(
        name="error_in_the_stream_ignored",
        promise="P4",
        bug="An error in the middle of a stream is read over.",
        file="agents/chat/openai/stream.py",
        symbol="_fail",
        old="        answer.failed(complaint(bytes(chunk.error)))",
        new="        answer.is_thinking = False",
        killed_by=(f"{CHAT_TRANSLATE}::test_an_error_in_the_stream_is_no_finish",),
    ),
    Mutant(
        name="lines_of_an_event_lost",
        promise="P4",
        bug="Only the last line of an event with several lines is read.",
        file="agents/chat/sse.py",
        symbol="EventSplitter._events_of_any_shape",
        old='events.append(b"\\n".join(data).strip() if len(data) > 1 else data[0].strip())',
        new="events.append(data[-1].strip())",
        killed_by=(f"{SSE_FRAGMENTS}::test_data_over_several_lines_is_one_event",),
    ),
    Mutant(
        name="event_without_a_bound",
        promise="P18",
        bug="An event that never ends is kept until the memory is full.",
        file="agents/chat/sse.py",
        symbol="EventSplitter.feed",
        old="        self._held_bytes += len(chunk)",
        new="        self._held_bytes = len(chunk)",
        killed_by=(f"{SSE_FRAGMENTS}::test_an_event_without_end_is_refused_at_its_bound",),
    ),
    Mutant(
        name="call_id_used_twice",
        promise="P5",
        bug=(
            "A call gets an id that an earlier call of the history has, and "
            "providers refuse the next request."
        ),
        file="agents/chat/answer/calls.py",
        symbol="CallSlots.whole",
        old="if not call_id or call_id in taken or _is_held(call_id, request):",
        new="if not call_id:",
        killed_by=(f"{CHAT_TRANSLATE}::test_a_call_id_that_the_request_holds_already_is_replaced",),
    ),
    Mutant(
        name="pieces_of_two_calls_mixed",
        promise="P5",
        bug="The arguments of parallel calls are written into one call.",
        file="agents/chat/answer/calls.py",
        symbol="CallSlots._slot",
        old="            if index is not None and slot.index != index:",
        new="            if index is None and slot.index != index:",
        killed_by=(f"{CHAT_TRANSLATE}::test_calls_are_put_together",),
    ),
    Mutant(
        name="key_in_an_address_told",
        promise="P14",
        bug="A key that stands in a server's address is told in its error.",
        file="agents/chat/failures.py",
        symbol="ModelServerInfo.failure",
        old="for secret in (*keys, *self.url_secrets):",
        new="for secret in keys:",
        killed_by=(f"{CHAT_WIRE}::test_a_key_in_the_address_is_sent_and_not_told",),
    ),
    Mutant(
        name="redirect_followed_with_the_key",
        promise="P14",
        bug="A redirect is followed, and the other server gets the key.",
        file="agents/chat/wire.py",
        symbol="ModelWire._ask",
        old="allow_redirects=False,",
        new="allow_redirects=True,",
        killed_by=(f"{CHAT_WIRE}::test_a_redirect_is_not_followed",),
    ),
    Mutant(
        name="cached_tokens_cost_nothing",
        promise="P23",
        bug="Tokens that the provider had cached are not counted as input.",
        file="agents/chat/anthropic/stream.py",
        symbol="_add_usage",
        old="input_tokens=_newer(usage.input_tokens, fresh) + read_tokens + write_tokens,",
        new="input_tokens=_newer(usage.input_tokens, fresh),",
        killed_by=(f"{CHAT_TRANSLATE}::test_usage_counts_cached_tokens_as_input_on_both_wires",),
    ),
    Mutant(
        name="begun_answer_asked_again",
        promise="P7",
        bug=(
            "A model whose answer was cut after it had begun is asked again as if "
            "nothing had happened."
        ),
        file="agents/chat/failures.py",
        symbol="cut",
        old="may_retry=not has_begun)",
        new="may_retry=True)",
        killed_by=(f"{CHAT_WIRE}::test_a_stream_without_a_finish_marker_is_cut",),
    ),
    Mutant(
        name="thoughts_in_capitals_shown",
        promise="P4",
        bug="Thoughts whose tags are written in capitals are shown as text.",
        file="agents/chat/answer/thoughts.py",
        symbol="_TAG",
        old='re.compile("<(/?)(think|thinking)>", re.IGNORECASE | re.ASCII)',
        new='re.compile("<(/?)(think|thinking)>", re.ASCII)',
        killed_by=(f"{THOUGHTS}::test_people_are_shown_an_answer_without_its_thoughts",),
    ),
    Mutant(
        name="history_after_the_context",
        promise="P19",
        bug="The encoded history stands in the request in another order than it happened.",
        file="agents/chat/openai/request.py",
        symbol="body",
        old="messages += [earlier, *request.history, *map(encode, request.messages)]",
        new="messages += [earlier, *map(encode, request.messages), *request.history]",
        killed_by=(
            f"{CHAT_TRANSLATE}::test_the_encoded_part_stands_in_the_request_byte_by_byte",
            f"{AGENTS}::test_an_encoded_history_is_taken_back",
        ),
    ),
    Mutant(
        name="note_not_carried",
        promise="P8",
        bug="The note about an interruption never reaches the model.",
        file="agents/chat/openai/request.py",
        symbol="_user",
        old="            case TextBlock(text) | Note(text):",
        new="            case TextBlock(text):",
        killed_by=(f"{CHAT_TRANSLATE}::test_a_note_is_told_to_the_model",),
    ),
    Mutant(
        name="call_goes_on_after_its_reader",
        promise="P19",
        bug="A model goes on writing after nobody reads any more.",
        file="agents/chat/agent.py",
        symbol="ChatAgent.run",
        old="            exchange.close()",
        new="            exchange.answer.texts.clear()",
        killed_by=(f"{AGENTS}::test_closing_the_stream_ends_the_call[openai]",),
    ),
    Mutant(
        name="agents_limit_exceeded",
        promise="P18",
        bug="A caller may ask for longer answers than the agent's own limit allows.",
        file="agents/chat/openai/request.py",
        symbol="_options",
        old="limit = asked.within(settings.max_tokens)",
        new="limit = asked.max_tokens or settings.max_tokens",
        killed_by=(f"{CHAT_TRANSLATE}::test_an_agents_own_limit_is_not_exceeded",),
    ),
    Mutant(
        name="wait_by_our_own_clock",
        promise="P24",
        bug=(
            "The date until which a server asks to wait is compared with our "
            "clock, which may be wrong."
        ),
        file="agents/chat/failures.py",
        symbol="retry_after_s",
        old="(now_ms / 1000 if asked_s is None else asked_s)",
        new="(now_ms / 1000)",
        killed_by=(f"{CHAT_TRANSLATE}::test_a_date_to_wait_for_is_read_by_the_servers_own_clock",),
    ),
    Mutant(
        name="late_server_asked_again",
        promise="P7",
        bug="A server that was late, and may be at work on it, is asked again.",
        file="agents/chat/failures.py",
        symbol="no_token_in_time",
        old="return server.failure(StopReason.PROVIDER_TIMEOUT, words)",
        new="return server.failure(StopReason.PROVIDER_TIMEOUT, words, may_retry=True)",
        killed_by=(
            f"{CHAT_TRANSLATE}::test_a_server_that_was_late_may_have_been_asked_and_is_not_asked_again",
        ),
    ),
    Mutant(
        name="calls_of_a_cut_answer_kept",
        promise="P18",
        bug="Calls of an answer that was cut at its bound are made, even incomplete ones.",
        file="agents/chat/answer/answer.py",
        symbol="ModelAnswer._end_if_too_much",
        old="            self.calls.clear()\n",
        new="            pass\n",
        killed_by=(f"{CHAT_TRANSLATE}::test_an_answer_that_asks_for_too_much_asks_for_nothing",),
    ),
    Mutant(
        name="milliseconds_taken_for_seconds",
        promise="P15",
        bug="A wait that is named in milliseconds lasts a thousand times as long.",
        file="agents/chat/failures.py",
        symbol="retry_after_s",
        old="return float(exact) / 1000",
        new="return float(exact)",
        killed_by=(f"{CHAT_TRANSLATE}::test_a_wait_in_milliseconds_counts_before_one_in_seconds",),
    ),
    Mutant(
        name="model_asked_past_the_proxy",
        promise="P14",
        bug="A model server is asked directly although a proxy is configured for every call.",
        file="agents/chat/wire.py",
        symbol="ModelWire._opened_session",
        old="self._outgoing.session(",
        new="DIRECT.session(",
        killed_by=(f"{OUTGOING}::test_a_model_is_asked_with_the_session_that_the_agent_is_given",),
    ),
)
