"""Lists the deliberate bugs in the domain room: rules and values."""

from typing import Final

from tests.mutants.mutant import Mutant

ACCESS: Final = "tests/unit/test_access.py"
BUDGETS: Final = "tests/unit/test_budgets.py"
COMMANDS: Final = "tests/unit/test_commands.py"
CONFIG: Final = "tests/unit/test_config.py"
DOMAIN_PROMPT: Final = "tests/property/test_domain_prompt.py"
ENDINGS: Final = "tests/unit/test_endings.py"
LEFT_OUT: Final = "tests/property/test_left_out.py"
LEFT_OUT_DECIDED: Final = f"{LEFT_OUT}::TestWhatIsLeftOut"
MARKDOWN_SPLITTING: Final = "tests/property/test_markdown_splitting.py"
NEXT_ACTION: Final = "tests/property/test_next_action.py"
OLD_PICTURES: Final = "tests/unit/test_old_pictures.py"
PICTURES: Final = "tests/unit/test_pictures.py"
RECOVERY: Final = "tests/unit/test_recovery.py"
SHARING: Final = "tests/unit/test_sharing.py"
STORE_AUDIT: Final = "tests/contract/test_store_audit.py"
STORE_COMMANDS: Final = "tests/contract/test_store_commands.py"
STORE_RECOVERY: Final = "tests/contract/test_store_recovery.py"
STORE_TELLING: Final = "tests/contract/test_store_telling.py"
TURN_TABLE: Final = "tests/unit/test_turn_table.py"
URLS: Final = "tests/unit/test_urls.py"
AGENT_IN_FLIGHT: Final = "tests/sim/test_agent_in_flight.py"
OVERHEARING: Final = "tests/sim/test_overhearing.py"

MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="stale_run_made_up_for",
        promise="P17",
        bug="After an outage a run is made up for, however old it is.",
        file="domain/schedule/policy.py",
        symbol="_chosen",
        old="oldest = now - max(window, ON_TIME_MS)",
        new="oldest = 0",
        killed_by=(
            "tests/contract/test_store_schedule.py::test_missed_occurrences_are_made_up_for_as_the_job_says",
        ),
    ),
    Mutant(
        name="unlisted_people_overheard",
        promise="P13",
        bug="What people say who may not speak to the bot is told, though nobody chose that.",
        file="domain/people/places.py",
        symbol="_is_open",
        old="return EVERYBODY in rules.allow or place in rules.places",
        new="return bool(rules.allow) or place in rules.places",
        killed_by=(
            f"{OVERHEARING}::test_the_configuration_says_where_the_bot_overhears[settings2-False]",
        ),
    ),
    Mutant(
        name="overheard_told_to_titles",
        promise="P12",
        bug="What others said in a group gets into the title, which is shown in lists.",
        file="domain/kinds.py",
        symbol="TurnKind.is_told_overheard",
        old="return self not in (TurnKind.TITLE, TurnKind.MEMORY)",
        new="return self is not TurnKind.MEMORY",
        killed_by=(f"{OVERHEARING}::test_it_gets_into_no_title",),
    ),
    Mutant(
        name="edit_that_brings_nothing_back",
        promise="P10",
        bug="A message that was left out stays out after its author has edited it.",
        file="domain/journal/left_out.py",
        symbol="Omitted._is_out",
        old="covered is not None and self._edits.get(name, 0) <= covered",
        new="covered is not None",
        killed_by=(f"{LEFT_OUT}::test_an_edit_brings_a_message_and_its_picture_back",),
    ),
    Mutant(
        name="refused_history_asked_for_ever",
        promise="P10",
        bug="What another agent took is refused by this one with every message, without an end.",
        file="domain/prompt/refusals.py",
        symbol="_older",
        old="if in_a_row < _UNANSWERED_AFTER:",
        new="if in_a_row <= _UNANSWERED_AFTER:",
        killed_by=(
            f"{LEFT_OUT_DECIDED}::test_what_this_agent_never_answered_from_the_second_refusal_on",
        ),
    ),
    Mutant(
        name="old_thoughts_told_again",
        promise="P5",
        bug="The thoughts of a turn that is over are told in every later request.",
        file="domain/prompt/prompt.py",
        symbol="messages_of",
        old="said.thoughts if with_thoughts else None",
        new="said.thoughts",
        killed_by=(
            "tests/unit/test_chat_thoughts.py::test_a_turn_that_is_over_is_told_without_thoughts",
        ),
    ),
    Mutant(
        name="interrupted_turn_queued_at_once",
        promise="P6",
        bug="A turn that was interrupted is put back in line without anybody deciding so.",
        file="domain/turn/turn.py",
        symbol="LEGAL",
        old="(State.RUNNING, AttemptInterrupted): State.INTERRUPTED,",
        new="(State.RUNNING, AttemptInterrupted): State.QUEUED,",
        killed_by=(f"{TURN_TABLE}::test_evolve_takes_what_is_legal_and_nothing_else",),
    ),
    Mutant(
        name="settled_turn_begins_again",
        promise="P6",
        bug="A fact that is not legal leaves the turn as it was instead of being refused.",
        file="domain/turn/turn.py",
        symbol="state_after",
        old="    if after is None:",
        new="    if after is None and state is None:",
        killed_by=(f"{TURN_TABLE}::test_evolve_takes_what_is_legal_and_nothing_else",),
    ),
    Mutant(
        name="one_step_too_many",
        promise="P18",
        bug="A turn takes one step more than it may.",
        file="domain/turn/next_action.py",
        symbol="_ask_or_end",
        old="if steps_taken(events) >= known.steps_max:",
        new="if steps_taken(events) > known.steps_max:",
        killed_by=(
            (
                f"{NEXT_ACTION}"
                "::test_too_many_steps_end_the_turn_and_an_interruption_begins_the_count_anew"
            ),
        ),
    ),
    Mutant(
        name="round_in_vain_too_many",
        promise="P18",
        bug="A turn whose calls go round makes one round more than it may.",
        file="domain/turn/next_action.py",
        symbol="_ask_or_end",
        old="if vain_rounds(events) >= VAIN_MAX:",
        new="if vain_rounds(events) > VAIN_MAX:",
        killed_by=(
            (
                "tests/unit/test_rounds.py"
                "::test_a_turn_ends_when_its_calls_go_round_in_however_many_steps"
            ),
        ),
    ),
    Mutant(
        name="cut_answer_called_done",
        promise="P4",
        bug="An answer that broke off is called done.",
        file="domain/turn/next_action.py",
        symbol="_ending",
        old="outcome = Outcome.DONE if heard.reason.is_finish else Outcome.FAILED",
        new="outcome = Outcome.DONE",
        killed_by=(f"{NEXT_ACTION}::test_how_the_last_call_ended_is_how_the_turn_ends",),
    ),
    Mutant(
        name="finished_call_run_again",
        promise="P7",
        bug="A call that has its result is run again.",
        file="domain/turn/next_action.py",
        symbol="open_calls",
        old="for call in each.calls if call.id not in finished)",
        new="for call in each.calls if call.id in finished or call.id)",
        killed_by=(f"{NEXT_ACTION}::test_no_call_runs_twice_and_each_has_one_result",),
    ),
    Mutant(
        name="prompt_fetched_again",
        promise="P3",
        bug="After a crash a prompt whose text is stored is fetched again, and told twice.",
        file="domain/turn/next_action.py",
        symbol="_named_in",
        old="isinstance(event, PromptExpanded | AssistantSaid)",
        new="isinstance(event, AssistantSaid)",
        killed_by=(f"{NEXT_ACTION}::test_a_prompt_is_looked_for_once_before_the_model_is_asked",),
    ),
    Mutant(
        name="forward_names_a_prompt",
        promise="P13",
        bug="What somebody else has written calls a prompt in the name of the person.",
        file="domain/turn/next_action.py",
        symbol="_named_in",
        old="not said.passed_on and ",
        new="",
        killed_by=(f"{NEXT_ACTION}::test_no_prompt_is_looked_for_where_no_person_has_named_one",),
    ),
    Mutant(
        name="refused_person_answered",
        promise="P13",
        bug="The known answer to a person who may not speak any more is given all the same.",
        file="domain/turn/next_action.py",
        symbol="next_action",
        old="    if known.refusal:",
        new="    if known.refusal and not queued.answer:",
        killed_by=(
            f"{NEXT_ACTION}::test_what_a_refused_person_wants_is_settled_before_anything_else",
        ),
    ),
    Mutant(
        name="callers_tools_run_here",
        promise="P7",
        bug="The gateway runs the tools that belong to the caller of its API.",
        file="domain/turn/next_action.py",
        symbol="asks_for_our_tools",
        old="any(not call.is_callers for call in calls)",
        new="any(calls)",
        killed_by=(f"{NEXT_ACTION}::test_only_our_own_tools_are_run_here",),
    ),
    Mutant(
        name="without_a_limit_all_is_too_old",
        promise="P7",
        bug="Without a limit of age no interrupted turn goes on by itself.",
        file="domain/turn/recovery.py",
        symbol="fate",
        old="is_stale = bool(policy.freshness_ms) and age_ms > policy.freshness_ms",
        new="is_stale = age_ms > policy.freshness_ms",
        killed_by=(f"{RECOVERY}::test_without_a_limit_nothing_is_too_old",),
    ),
    Mutant(
        name="interruption_told_twice",
        promise="P8",
        bug="The model is told of an interruption that it was told of before.",
        file="domain/turn/recovery.py",
        symbol="untold",
        old="and recorded.seq > told_seq",
        new="and recorded.seq >= told_seq",
        killed_by=(
            f"{STORE_TELLING}::test_a_turn_that_is_cut_twice_tells_each_time_of_the_last[sqlite]",
            f"{STORE_RECOVERY}::test_what_the_model_was_told_is_not_told_again[sqlite]",
        ),
    ),
    Mutant(
        name="note_kept_in_the_history",
        promise="P8",
        bug="A note for the model becomes a message of the person.",
        file="domain/prompt/prompt.py",
        symbol="messages_of",
        old="            held.append(notes[recorded.key])",
        new="            _add(messages, Role.USER, [TextBlock(notes[recorded.key].text)])",
        killed_by=(f"{DOMAIN_PROMPT}::test_a_resumed_turn_ends_with_its_note",),
    ),
    Mutant(
        name="note_between_call_and_result",
        promise="P5",
        bug="A note stands between a tool call and its result, which providers refuse.",
        file="domain/prompt/prompt.py",
        symbol="messages_of",
        old="if (held_words or held) and not unanswered:",
        new="if held_words or held:",
        killed_by=(f"{DOMAIN_PROMPT}::test_a_note_waits_until_every_call_has_its_result",),
    ),
    Mutant(
        name="unanswered_call_sent",
        promise="P5",
        bug="A request with a tool call that has no result is sent.",
        file="domain/prompt/prompt.py",
        symbol="_check_blocks",
        old=(
            "    if open_calls is not None and (len(results) != len(open_calls) or "
            "set(results) != open_calls):"
        ),
        new="    if open_calls is not None and len(results) > len(open_calls):",
        killed_by=(f"{DOMAIN_PROMPT}::test_what_a_strict_provider_refuses_is_refused_here",),
    ),
    Mutant(
        name="newest_message_sealed_early",
        promise="P23",
        bug=(
            "The newest message is encoded before it is complete, so the next "
            "request begins with other bytes."
        ),
        file="domain/prompt/prompt.py",
        symbol="weave",
        old="return (woven[:-1], woven[-1]) if woven else ([], None)",
        new="return woven, None",
        killed_by=(f"{DOMAIN_PROMPT}::test_the_bytes_of_an_earlier_request_begin_every_later_one",),
    ),
    Mutant(
        name="time_of_the_last_message_forgotten",
        promise="P23",
        bug=(
            "Where the time is told depends on how the history was put together, so a request that "
            "is made again begins with other bytes."
        ),
        file="domain/prompt/whereabouts.py",
        symbol="times_of",
        old="return times, before",
        new="return times, 0",
        killed_by=(
            f"{DOMAIN_PROMPT}::test_a_change_of_the_day_or_hour_leaves_earlier_bytes_as_they_were",
        ),
    ),
    Mutant(
        name="window_grows_differently",
        promise="P19",
        bug="A history that grows turn by turn loses what was encoded before.",
        file="domain/prompt/prompt.py",
        symbol="extend",
        old=(
            "    sealed = list(window.sealed)\n"
            "    stretch = [window.encoded] if window.encoded else []"
        ),
        new=("    sealed = list(window.sealed)\n    stretch = []"),
        killed_by=(f"{DOMAIN_PROMPT}::test_growing_a_window_turn_by_turn_is_the_same_as_at_once",),
    ),
    Mutant(
        name="summary_told_as_the_persons_words",
        promise="P9",
        bug="A summary is told to the model as if the person had said it.",
        file="domain/prompt/compaction.py",
        symbol="brought_text",
        old="return background(brought.summary)",
        new="return brought.summary",
        killed_by=(
            (
                f"{STORE_COMMANDS}"
                "::TestCompaction::test_a_summary_stands_for_older_turns_for_the_model_alone[sqlite]"
            ),
        ),
    ),
    Mutant(
        name="every_bot_let_in",
        promise="P13",
        bug="Where everybody may speak, every bot may speak too, and two bots can talk for ever.",
        file="domain/people/access.py",
        symbol="may_speak",
        old="        return sender.id in rules.bots",
        new="        return sender.id in rules.bots or EVERYBODY in rules.allow",
        killed_by=(f"{ACCESS}::test_each_arrival_gets_the_verdict_of_the_table",),
    ),
    Mutant(
        name="stranger_let_in_by_an_empty_role",
        promise="P13",
        bug="Whoever has no role is let in where roles are named.",
        file="domain/people/access.py",
        symbol="may_speak",
        old="or not rules.roles.isdisjoint(sender.roles)",
        new="or rules.roles.issuperset(sender.roles)",
        killed_by=(f"{ACCESS}::test_no_rule_lets_anyone_in_whom_it_does_not_name",),
    ),
    Mutant(
        name="revoked_token_still_speaks",
        promise="P13",
        bug="A turn of a person whose tokens were all revoked begins.",
        file="domain/people/access.py",
        symbol="access_refusal",
        old="        if speaker.has_token:",
        new="        if speaker.has_token or speaker.name:",
        killed_by=(f"{ACCESS}::test_each_turn_begins_only_where_the_table_allows_it",),
    ),
    Mutant(
        name="budget_overdrawn_by_one",
        promise="P23",
        bug="A budget can be overdrawn.",
        file="domain/people/budgets.py",
        symbol="budget_refusal",
        old="if gone + wanted > limit:",
        new="if gone > limit:",
        killed_by=(f"{BUDGETS}::test_a_budget_is_filled_to_its_last_token_and_no_further",),
    ),
    Mutant(
        name="day_of_the_machine",
        promise="P23",
        bug="A budget renews at midnight of the machine's own time zone.",
        file="domain/people/budgets.py",
        symbol="day_of",
        old="datetime.fromtimestamp(at_ms / 1000, UTC)",
        new="datetime.fromtimestamp(at_ms / 1000)",
        killed_by=(f"{BUDGETS}::test_a_day_is_that_of_utc_wherever_the_machine_stands",),
    ),
    Mutant(
        name="slots_given_to_who_has_most",
        promise="P24",
        bug=(
            "Free places go in the order of arrival, so one person's crowd is "
            "served before all others."
        ),
        file="domain/people/sharing.py",
        symbol="fairly",
        old="who = min(open_to, key=lambda each: (in_use[each], lines[each][0][0]))",
        new="who = min(open_to, key=lambda each: lines[each][0][0])",
        killed_by=(f"{SHARING}::test_each_slot_goes_to_whoever_has_the_fewest",),
    ),
    Mutant(
        name="no_slot_kept_for_others",
        promise="P24",
        bug="One person may have all of the places.",
        file="domain/people/sharing.py",
        symbol="most_of",
        old="return max(slots - max(slots // _ONE_IN, 1), 1)",
        new="return max(slots, 1)",
        killed_by=(f"{SHARING}::test_a_slot_is_kept_for_others_where_there_are_several",),
    ),
    Mutant(
        name="password_shown_in_an_address",
        promise="P14",
        bug="The name and password in an address are shown.",
        file="domain/urls.py",
        symbol="_place_of",
        old='return f"{parts.scheme}://{host}{port}"',
        new='return f"{parts.scheme}://{parts.netloc}"',
        killed_by=(f"{URLS}::test_an_address_is_shown_without_what_may_be_secret",),
    ),
    Mutant(
        name="encoded_secret_not_found",
        promise="P14",
        bug="A secret that stands encoded in an address is not hidden where it is told decoded.",
        file="domain/urls.py",
        symbol="secrets_in_url",
        old="for form in (each, unquote(each))}",
        new="for form in (each,)}",
        killed_by=(f"{URLS}::test_what_may_be_secret_is_found_in_both_of_its_forms",),
    ),
    Mutant(
        name="secret_shows_itself",
        promise="P14",
        bug="A secret in a log line shows its value.",
        file="domain/secret.py",
        symbol="Secret.__repr__",
        old='return f"Secret({_MASK})"',
        new='return f"Secret({self._value})"',
        killed_by=(f"{CONFIG}::test_a_secret_never_shows_itself",),
    ),
    Mutant(
        name="internals_told_to_people",
        promise="P12",
        bug="People read the internal error of a failed turn.",
        file="domain/turn/endings.py",
        symbol="worded_reason",
        old="return _HAPPENED.get(reason, _FAILED)",
        new="return detail",
        killed_by=(f"{ENDINGS}::test_people_are_told_what_happened_and_no_internals",),
    ),
    Mutant(
        name="piece_one_over_the_limit",
        promise="P15",
        bug="A text that is longer than the platform takes is sent as it is.",
        file="domain/markdown/split.py",
        symbol="split",
        old="    if measured(text) <= limit:",
        new="    if measured(text) <= limit + 1:",
        killed_by=(f"{MARKDOWN_SPLITTING}::test_a_text_one_too_long_is_cut",),
    ),
    Mutant(
        name="undo_count_without_bound",
        promise="P11",
        bug="An undo takes a count beyond its limit.",
        file="domain/inbound/commands.py",
        symbol="Given._is_count",
        old="and 1 <= int(self.arguments) <= COUNT_MAX",
        new="and 0 <= int(self.arguments) <= COUNT_MAX",
        killed_by=(f"{COMMANDS}::test_a_count_is_a_small_whole_number",),
    ),
    Mutant(
        name="second_command_in_a_text",
        promise="P11",
        bug="A path at the beginning of a message is taken for a command.",
        file="domain/inbound/commands.py",
        symbol="command_in",
        old='_SHAPE.match(stripped) if stripped.startswith("/") else None',
        new='_SHAPE.search(stripped) if "/" in stripped else None',
        killed_by=(f"{COMMANDS}::test_what_only_begins_with_a_slash_is_text",),
    ),
    Mutant(
        name="gap_in_a_journal_not_seen",
        promise="P22",
        bug="A check of the database does not see a journal with a gap.",
        file="domain/checking/checker.py",
        symbol="_journal_is_gapless",
        old="    if seqs != list(range(1, len(seqs) + 1)):",
        new="    if seqs != sorted(seqs):",
        killed_by=(f"{STORE_AUDIT}::test_a_journal_with_a_gap_is_found[sqlite]",),
    ),
    Mutant(
        name="lost_strikes_not_seen",
        promise="P22",
        bug="A check of the database does not see that the count of crashes is wrong.",
        file="domain/checking/checker.py",
        symbol="_session_follows_the_journal",
        old="    if strikes != record.strikes:",
        new="    if strikes > record.strikes:",
        killed_by=(f"{STORE_AUDIT}::test_a_broken_session_stays_new_until_it_is_mended[sqlite]",),
    ),
    Mutant(
        name="closed_platform_gives_codes",
        promise="P13",
        bug="Strangers get pairing codes on a platform on which nobody is served any more.",
        file="domain/people/access.py",
        symbol="decide",
        old="    if rules.is_closed:\n        return AccessVerdict.STRANGER\n",
        new="",
        killed_by=(
            f"{ACCESS}::test_on_a_closed_platform_everybody_is_a_stranger_and_nobody_gets_a_code",
        ),
    ),
    Mutant(
        name="call_written_otherwise_made_again",
        promise="P7",
        bug="A call of unknown fate is made again because its arguments stand in another order.",
        file="domain/tools/traits.py",
        symbol="canonical",
        old='return msgspec.json.encode(value, order="deterministic").decode()',
        new="return arguments",
        killed_by=(f"{RECOVERY}::test_a_call_of_unknown_fate_is_recognized_however_it_is_written",),
    ),
    Mutant(
        name="full_person_looked_for",
        promise="P24",
        bug="Turns of a person who has no slot left are looked for before those of others.",
        file="domain/people/sharing.py",
        symbol="FairShares.full",
        old="if count >= self.most",
        new="if count > self.most",
        killed_by=(f"{SHARING}::test_who_has_all_that_one_person_may_have_is_full",),
    ),
    Mutant(
        name="frame_with_a_known_end",
        promise="P13",
        bug="The output of a tool can hold the end of its own frame.",
        file="domain/tools/framing.py",
        symbol="framed",
        old="mark = digest_of(call, output)[:_LENGTH]",
        new="mark = digest_of(call, tool)[:_LENGTH]",
        killed_by=("tests/unit/test_framing.py::test_an_output_cannot_end_its_own_frame",),
    ),
    Mutant(
        name="other_tool_taken_for_the_same",
        promise="P7",
        bug="A tool is not called because another one may have been, with the same arguments.",
        file="domain/turn/recovery.py",
        symbol="may_have_happened",
        old="and each.name == call.name",
        new="",
        killed_by=(f"{RECOVERY}::test_a_call_of_unknown_fate_is_recognized_however_it_is_written",),
    ),
    Mutant(
        name="failed_call_counts_as_unknown",
        promise="P7",
        bug="A call that has failed for certain is not made again.",
        file="domain/turn/recovery.py",
        symbol="may_have_happened",
        old="and event.ending is CallEnding.UNKNOWN",
        new="and event.ending is not CallEnding.RETURNED",
        killed_by=(f"{RECOVERY}::test_a_call_of_unknown_fate_is_recognized_however_it_is_written",),
    ),
    Mutant(
        name="second_steer_forgotten",
        promise="P1",
        bug="A message to a turn is forgotten because the turn has taken another one.",
        file="domain/turn/recovery.py",
        symbol="has_untaken_steers",
        old="return any(message not in taken for message in accepted)",
        new="return all(message not in taken for message in accepted) and bool(accepted)",
        killed_by=(f"{RECOVERY}::test_a_turn_has_messages_to_take_until_it_has_taken_all_of_them",),
    ),
    Mutant(
        name="unknown_call_not_mentioned",
        promise="P7",
        bug="The model is not told that a call may have happened and that it must ask the person.",
        file="domain/turn/recovery.py",
        symbol="_note",
        old="    if CallEnding.UNKNOWN in endings:",
        new="    if CallEnding.UNKNOWN in endings and CallEnding.INTERRUPTED in endings:",
        killed_by=(f"{RECOVERY}::test_the_model_is_told_which_calls_it_may_make_again",),
    ),
    Mutant(
        name="old_pictures_go_one_by_one",
        promise="P23",
        bug="Each new picture changes the beginning of the request, because an old one leaves it.",
        file="domain/prompt/old_pictures.py",
        symbol="old_pictures",
        old="step = max(kept // 2, 1)",
        new="step = 1",
        killed_by=(f"{OLD_PICTURES}::test_with_one_picture_in_each_turn_the_steps_are_far_apart",),
    ),
    Mutant(
        name="large_pictures_fit",
        promise="P18",
        bug="A picture is sent to the model however long its sides are.",
        file="domain/reading/pictures.py",
        symbol="fits",
        old=" and max(head.width, head.height) <= SIDE_MAX",
        new="",
        killed_by=(f"{PICTURES}::test_what_models_do_not_take_is_made_to_fit",),
    ),
    Mutant(
        name="agent_that_dies_of_others_is_counted",
        promise="P19",
        bug="A turn is given up because its agent died of the work of others.",
        file="domain/outcomes.py",
        symbol="_SUSPICIOUS",
        old="Interruption.AGENT_LOST})",
        new="Interruption.AGENT_LOST, Interruption.AGENT_LOST_BESIDE})",
        killed_by=(f"{AGENT_IN_FLIGHT}::test_a_turn_whose_agent_dies_of_others_is_not_given_up",),
    ),
    Mutant(
        name="model_not_told_that_its_text_was_seen",
        promise="P7",
        bug="After a crash the model does not learn that its words were seen, and begins anew.",
        file="domain/turn/recovery.py",
        symbol="_note",
        old="if has_text:",
        new="if not has_text:",
        killed_by=(f"{RECOVERY}::test_the_note_says_what_was_shown_and_what_to_do",),
    ),
    Mutant(
        name="permission_lost_with_an_id",
        promise="P13",
        bug="Who may speak in a group may not any more once the group has another id.",
        file="domain/people/access.py",
        symbol="rules_in",
        old="    return msgspec.structs.replace(rules, places=rules.places | {place})",
        new="    return rules",
        killed_by=(
            (
                "tests/sim/test_relocating.py::"
                "test_settings_and_permission_by_the_former_id_stay_good_after_a_restart"
            ),
        ),
    ),
)
