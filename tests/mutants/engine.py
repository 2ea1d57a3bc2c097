"""Lists the deliberate bugs in the engine room: who acts, when, and what is known before."""

from typing import Final

from tests.mutants.mutant import Mutant

ACCESS_ASKED_AGAIN: Final = "tests/sim/test_access_asked_again.py"
DELIVERY_HOLDS: Final = "tests/sim/test_delivery_holds.py"
FEED: Final = "tests/unit/test_feed.py"
PUSHES: Final = "tests/sim/test_pushes_survive.py"
HOOKS: Final = "tests/sim/test_hooks_survive.py"
HANDOVER: Final = "tests/unit/test_handover.py"
LEASES: Final = "tests/unit/test_leases.py"
LEASES_ASKED: Final = "tests/sim/test_leases_asked.py"
LIMITED_SERVERS: Final = "tests/unit/test_limited_servers.py"
MODEL_AWAY: Final = "tests/sim/test_model_away.py"
ONCE_MEANS_ONCE: Final = "tests/sim/test_once_means_once.py"
OVERFLOW: Final = "tests/unit/test_overflow.py"
PACE: Final = "tests/unit/test_pace.py"
PERSIST: Final = "tests/unit/test_persist.py"
PUMPS: Final = "tests/sim/test_pumps.py"
REACHING: Final = "tests/unit/test_reaching.py"
REAPER: Final = "tests/unit/test_reaper.py"
RECEIVING: Final = "tests/sim/test_receiving.py"
RECONCILING: Final = "tests/unit/test_reconciling.py"
RUNNING: Final = "tests/sim/test_running.py"
SAMPLING: Final = "tests/e2e/test_sampling.py"
STILL_AT_WORK: Final = "tests/sim/test_still_at_work.py"
STOP_IN_TIME: Final = "tests/sim/test_stop_in_time.py"
STORE_SHELVES: Final = "tests/contract/test_store_shelves.py"
TOOL_CALLS: Final = "tests/sim/test_tool_calls.py"
WAKES: Final = "tests/unit/test_wakes.py"
WINDOWS: Final = "tests/unit/test_windows.py"
WHEREABOUTS: Final = "tests/e2e/test_whereabouts.py"
GROUPS: Final = "tests/sim/test_groups.py"

MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="strangers_read_for_wake_words",
        promise="P13",
        bug="What strangers say is read, in search of a word that calls the bot.",
        file="engine/inbound/inlet.py",
        symbol="AccountInlet._verdict",
        old="if not may_speak(terms.rules, arrival.sender, arrival.place, is_paired=is_paired):",
        new="if terms.rules.is_closed:",
        killed_by=(f"{GROUPS}::test_a_word_wakes_the_bot_and_only_for_those_who_may_speak",),
    ),
    Mutant(
        name="silence_shown_while_it_grows",
        promise="P4",
        bug="People see the beginning of an answer that turns out to be none, and it stays.",
        file="engine/delivery/turn_text.py",
        symbol="TurnText.now",
        old="if may_become_silent(said):",
        new="if not said:",
        killed_by=(f"{GROUPS}::test_an_agent_that_reads_along_may_say_nothing",),
    ),
    Mutant(
        name="list_tells_what_is_known",
        promise="P12",
        bug="A client is told again of conversations that have not changed.",
        file="engine/watching/lists.py",
        symbol="_ListWatch.learn",
        old="if self.known.get(view.id) != view",
        new="if view",
        killed_by=(
            f"{STORE_SHELVES}::test_clients_hear_live_of_what_changes_and_of_nothing_else[sqlite]",
        ),
    ),
    Mutant(
        name="occasion_deleted_before_it_is_heard",
        promise="P1",
        bug="The row of an occasion is deleted first, so a crash hides it from the hooks.",
        file="engine/watching/hook_pump.py",
        symbol="HookPump._tell_stored",
        old="        await self._hooks.call(call)\n",
        new="        await self._occasions.heard(call)\n        await self._hooks.call(call)\n",
        killed_by=(f"{HOOKS}::test_no_instant_hides_an_end_from_hooks",),
    ),
    Mutant(
        name="notification_deleted_before_it_is_sent",
        promise="P2",
        bug="The row of a notification is deleted first, so a crash hides it from the browser.",
        file="engine/watching/push_pump.py",
        symbol="PushPump._hand_over",
        old="            await self._sender.send(push, key)\n",
        new="            await self._pushes.arrived(push)\n"
        "            await self._sender.send(push, key)\n",
        killed_by=(f"{PUSHES}::test_a_push_service_that_wants_to_be_left_alone_is_asked_later",),
    ),
    Mutant(
        name="settled_turn_loses_its_time",
        promise="P23",
        bug="The time of a message is told in its own turn, and left out of every later request.",
        file="engine/models/prompts.py",
        symbol="Prompts.settled",
        old="said = messages_of(own, times=times, before=known.open_calls)",
        new="said = messages_of(own, before=known.open_calls)",
        killed_by=(f"{WHEREABOUTS}::test_a_model_knows_where_it_is_and_a_new_day_changes_no_byte",),
    ),
    Mutant(
        name="thoughts_not_stored_with_their_calls",
        promise="P5",
        bug="A model that wants its thoughts back beside its tool calls never gets them.",
        file="engine/turns/model_calls.py",
        symbol="ModelCalls.keep",
        old="calls=step.calls, thoughts=step.thoughts",
        new="calls=step.calls",
        killed_by=(
            "tests/sim/test_thoughts_survive.py::test_no_instant_parts_a_call_from_its_thoughts",
        ),
    ),
    Mutant(
        name="text_shown_before_it_is_stored",
        promise="P4",
        bug="Text is shown before it is stored, so a crash can lose what people saw.",
        file="engine/turns/ledger.py",
        symbol="Ledger.flush",
        old=(
            "        if events:\n"
            "            await self.append(events, piece=piece)\n"
            "        else:\n"
            "            await self._flusher.flush(piece)\n"
            "        shown = Delta(\n"
            "            turn=self.lease.turn,\n"
            "            message=piece.message,\n"
            "            offset=piece.start + known,\n"
            "            text=piece.text[known:],\n"
            "        )\n"
            "        self._feed.publish(self.lease.session, (shown,))"
        ),
        new=(
            "        shown = Delta(\n"
            "            turn=self.lease.turn,\n"
            "            message=piece.message,\n"
            "            offset=piece.start + known,\n"
            "            text=piece.text[known:],\n"
            "        )\n"
            "        self._feed.publish(self.lease.session, (shown,))\n"
            "        if events:\n"
            "            await self.append(events, piece=piece)\n"
            "        else:\n"
            "            await self._flusher.flush(piece)"
        ),
        killed_by=(
            (
                f"{STOP_IN_TIME}"
                "::test_a_turn_that_another_node_has_ended_is_let_go_of_with_its_next_word"
            ),
            f"{STILL_AT_WORK}::test_nobody_waits_for_a_flush_that_broke",
        ),
    ),
    Mutant(
        name="last_words_not_in_the_message",
        promise="P4",
        bug="A message is final while its last words are still being stored.",
        file="engine/turns/scribe.py",
        symbol="Scribe.finish",
        old=("        async with self._in_flight:\n            if self._task is not None:"),
        new=("        if self.has_text:\n            if self._task is not None:"),
        killed_by=(f"{PUMPS}::test_a_message_is_not_final_while_words_of_it_are_being_stored",),
    ),
    Mutant(
        name="refused_flush_taken_for_stored",
        promise="P4",
        bug="Text that the store refused is shown all the same.",
        file="engine/turns/flusher.py",
        symbol="Flusher._flush_batch",
        old="            if piece.lease.turn in fenced:",
        new="            if piece.lease.turn in fenced and beats:",
        killed_by=(
            (
                f"{STOP_IN_TIME}"
                "::test_a_turn_that_another_node_has_ended_is_let_go_of_with_its_next_word"
            ),
        ),
    ),
    Mutant(
        name="tool_runs_without_a_lease",
        promise="P7",
        bug="A tool runs although nobody knows whether the turn is still ours.",
        file="engine/turns/tools/tool_calls.py",
        symbol="_Work._run",
        old="        await self._services.lease.held()",
        new="        await asyncio.sleep(0)",
        killed_by=(
            f"{LEASES_ASKED}::test_no_tool_is_run_while_nobody_knows_whether_the_turn_is_ours",
        ),
    ),
    Mutant(
        name="model_asked_without_a_lease",
        promise="P6",
        bug="A model is asked although nobody knows whether the turn is still ours.",
        file="engine/turns/model_calls.py",
        symbol="ModelCalls._call",
        old="        await self._services.lease.held()",
        new="        await asyncio.sleep(0)",
        killed_by=(
            f"{LEASES_ASKED}::test_no_model_is_asked_while_nobody_knows_whether_the_turn_is_ours",
        ),
    ),
    Mutant(
        name="lease_used_to_its_last_second",
        promise="P21",
        bug="A node acts on its lease when it has already run out.",
        file="engine/foundation/leases.py",
        symbol="NodeLease.may_act",
        old="< self._lease_s - MARGIN_S",
        new="< self._lease_s + MARGIN_S",
        killed_by=(
            f"{LEASES}::test_a_heartbeat_renews_the_lease_from_before_its_write",
            f"{LEASES}::test_whoever_must_wait_goes_on_with_the_next_heartbeat",
        ),
    ),
    Mutant(
        name="sleep_of_the_machine_not_counted",
        promise="P21",
        bug="The time in which the machine slept does not count towards the lease.",
        file="engine/foundation/leases.py",
        symbol="NodeLease.passed_s",
        old="return max(now.monotonic_s - since.monotonic_s, by_the_wall_s)",
        new="return min(now.monotonic_s - since.monotonic_s, by_the_wall_s)",
        killed_by=(f"{LEASES}::test_a_machine_that_slept_holds_nothing",),
    ),
    Mutant(
        name="unknown_write_repeated_blindly",
        promise="P3",
        bug="A write of unknown fate is repeated without looking whether it happened.",
        file="engine/foundation/persist.py",
        symbol="persist",
        old="if isinstance(error, Ambiguous) and happened is not None:",
        new="if isinstance(error, Transient) and happened is not None:",
        killed_by=(f"{PERSIST}::test_a_write_of_unknown_fate_is_looked_for_before_it_is_repeated",),
    ),
    Mutant(
        name="forgotten_key_repeated",
        promise="P3",
        bug="A part is sent again under a key that the platform has forgotten.",
        file="engine/delivery/reconciling.py",
        symbol="Reconciler._is_key_known",
        old="return can.takes_key and is_recent and is_known",
        new="return can.takes_key and is_known",
        killed_by=(f"{PUMPS}::test_a_key_is_repeated_only_while_the_platform_remembers_it",),
    ),
    Mutant(
        name="unknown_part_sent_again",
        promise="P3",
        bug="A part that may have arrived is sent again on a platform that cannot tell.",
        file="engine/delivery/reconciling.py",
        symbol="Reconciler._reconcile",
        old="await self._tries.record(part, PartState.UNKNOWN, error=without_promise(why))",
        new="await self._tries.record(part, PartState.PENDING, error=without_promise(why))",
        killed_by=(f"{PUMPS}::test_what_may_have_arrived_is_not_sent_again_without_a_key",),
    ),
    Mutant(
        name="found_part_sent_again",
        promise="P3",
        bug="A part that is found on the platform is sent again.",
        file="engine/delivery/reconciling.py",
        symbol="Reconciler._found",
        old="        if receipt is not None:",
        new="        if receipt is not None and age_s < 0:",
        killed_by=(f"{PUMPS}::test_what_is_found_on_the_platform_is_not_sent_again",),
    ),
    Mutant(
        name="part_sent_after_the_lease",
        promise="P3",
        bug="A part is sent although the lease under which it was taken is over.",
        file="engine/delivery/outbox.py",
        symbol="OutboxPump._send",
        old="            if not lease.may_act:",
        new="            if lease is None:",
        killed_by=(f"{LEASES_ASKED}::test_a_part_is_not_sent_by_whoever_may_not_have_it_any_more",),
    ),
    Mutant(
        name="taken_parts_given_back_in_flight",
        promise="P3",
        bug="Parts that are being sent are given back when the answer to a later taking is lost.",
        file="engine/delivery/outbox.py",
        symbol="OutboxPump._take",
        old="            keep = tuple(self._in_flight)",
        new="            keep = ()",
        killed_by=(f"{DELIVERY_HOLDS}::test_a_lost_answer_to_taking_sends_nothing_twice",),
    ),
    Mutant(
        name="final_words_overtake_their_preview",
        promise="P2",
        bug="Final words are sent while a preview of them is still under way.",
        file="engine/delivery/handover.py",
        symbol="Handovers.receive",
        old="            if not expected.is_over.done():",
        new="            if expected.is_over.cancelled():",
        killed_by=(f"{HANDOVER}::test_a_preview_that_hangs_does_not_hold_up_its_part_for_ever",),
    ),
    Mutant(
        name="full_line_refused_in_silence",
        promise="P1",
        bug="A message that was refused leaves no record, and its sender is told nothing.",
        file="engine/inbound/inlet.py",
        symbol="AccountInlet._welcome",
        old="            await self._access.refuse(caller, error.code, told=told)",
        new='            log.info("refused", why=told)',
        killed_by=(f"{RECEIVING}::test_a_full_line_is_told",),
    ),
    Mutant(
        name="lost_claim_never_found",
        promise="P1",
        bug="A turn whose claim was not heard of is never looked for.",
        file="engine/turns/pump.py",
        symbol="TurnPump.step",
        old="            self._is_unsure = True",
        new="            self._is_unsure = False",
        killed_by=(f"{PUMPS}::test_a_turn_whose_claim_was_not_heard_of_is_answered",),
    ),
    Mutant(
        name="arrival_dropped_on_a_store_fault",
        promise="P1",
        bug=(
            "An arrival that the store could not take now is put aside instead of "
            "being offered again."
        ),
        file="engine/inbound/inlet.py",
        symbol="AccountInlet.take",
        old="            foreseen=(Transient, Ambiguous),",
        new="            foreseen=(),",
        killed_by=(f"{RECEIVING}::test_an_arrival_whose_taking_failed_is_offered_again",),
    ),
    Mutant(
        name="refused_arrival_taken_later",
        promise="P13",
        bug="What was refused is taken when the platform offers it again.",
        file="engine/inbound/inlet.py",
        symbol="AccountInlet._decide",
        old="        if standing.is_refused:",
        new="        if standing.is_refused and standing.is_engaged:",
        killed_by=(f"{RECEIVING}::test_what_was_refused_is_not_taken_when_it_is_offered_again",),
    ),
    Mutant(
        name="access_not_asked_again",
        promise="P13",
        bug="A turn that waited begins although its person may not speak any more.",
        file="engine/turns/pump.py",
        symbol="TurnPump.begin",
        old=(
            'why_not = self._services.admission.refusal(claimed.speaker) if claimed.speaker else ""'
        ),
        new='why_not = ""',
        killed_by=(
            f"{ACCESS_ASKED_AGAIN}::test_what_waits_is_refused_once_its_person_may_not_speak",
        ),
    ),
    Mutant(
        name="role_of_an_operator_remembered",
        promise="P13",
        bug="Somebody who is no operator any more keeps the rights of one.",
        file="engine/inbound/inlet.py",
        symbol="AccountInlet._principal",
        old="        key = (sender.id, role)",
        new='        key = (sender.id, "")',
        killed_by=(f"{RECEIVING}::test_who_is_an_operator_is_what_the_configuration_says_now",),
    ),
    Mutant(
        name="silent_platform_called_healthy",
        promise="P20",
        bug="A platform from which nothing has come for long is said to be served.",
        file="engine/inbound/receivers.py",
        symbol="PlatformReceiver.view",
        old="health = Health.BLIND if silent_s > SILENCE_S else Health.SERVING",
        new="health = Health.SERVING",
        killed_by=(f"{RECEIVING}::test_health_is_proved_by_traffic",),
    ),
    Mutant(
        name="reconnects_during_a_named_wait",
        promise="P15",
        bug="A platform that asked for a pause is called again before it is over.",
        file="engine/inbound/receivers.py",
        symbol="PlatformReceiver._receive",
        old=(
            "                await self._surface.heed(error, CONNECTION)\n"
            "                self._pause_s = max(self._pause_s, error.retry_after_s or 0)"
        ),
        new="                self._pause_s = min(self._pause_s, error.retry_after_s or 0)",
        killed_by=(f"{RECEIVING}::test_the_wait_that_a_platform_names_is_kept",),
    ),
    Mutant(
        name="hold_shortened",
        promise="P15",
        bug="A short wait that a platform names ends a longer one, as long as the process lives.",
        file="engine/delivery/pace.py",
        symbol="Bucket.hold",
        old="self._held_until = max(self._held_until, until)",
        new="self._held_until = until",
        killed_by=(f"{PACE}::test_a_shorter_wait_does_not_end_a_longer_one",),
    ),
    Mutant(
        name="window_of_the_pace_too_short",
        promise="P15",
        bug="Calls are forgotten before the platform's window is over, so too many are made.",
        file="engine/delivery/pace.py",
        symbol="Bucket.wait_s",
        old="self._times[0] <= now - rate.per_s:",
        new="self._times[0] <= now - rate.per_s / 2:",
        killed_by=(f"{PACE}::test_no_window_holds_more_than_it_may",),
    ),
    Mutant(
        name="previews_take_the_last_room",
        promise="P15",
        bug="Previews use up the calls that final answers need.",
        file="engine/delivery/pace.py",
        symbol="Bucket.wait_s",
        old="kept_free = max(self._waiting(now), rate.count // _FREE_SHARES[rank])",
        new="kept_free = 0",
        killed_by=(f"{PACE}::test_previews_leave_room_for_the_finals_that_wait",),
    ),
    Mutant(
        name="earlier_calls_cost_no_budget",
        promise="P23",
        bug="The second model call of a turn does not count what the first has used.",
        file="engine/models/budget.py",
        symbol="_total",
        old="return Amount(tokens=next_call.tokens + used, money=money)",
        new="return Amount(tokens=next_call.tokens, money=money)",
        killed_by=(
            f"{RUNNING}::test_each_call_reserves_for_its_agent_and_asker_on_top_of_what_was_used",
        ),
    ),
    Mutant(
        name="budget_refusal_ignored",
        promise="P23",
        bug="A model is asked although the budget has refused it.",
        file="engine/turns/model_calls.py",
        symbol="ModelCalls._prepare",
        old="        if refused:",
        new="        if refused and self._room is None:",
        killed_by=(f"{RUNNING}::test_no_model_is_asked_where_the_budget_has_no_room",),
    ),
    Mutant(
        name="endless_answer_kept",
        promise="P18",
        bug="What a model says beyond the limit of one answer is kept.",
        file="engine/turns/model_calls.py",
        symbol="ModelCalls._call",
        old="scribe.add(measure.text(text))",
        new="scribe.add(text)",
        killed_by=(f"{RUNNING}::test_a_model_says_no_more_than_it_may",),
    ),
    Mutant(
        name="slow_watcher_keeps_everything",
        promise="P18",
        bug="Everything that was published is kept for a watcher who never reads.",
        file="engine/watching/feed.py",
        symbol="Published.is_far_behind",
        old=(
            "return last.number - self.number > BACKLOG_MAX or last.length - "
            "self.length > BACKLOG_LENGTH"
        ),
        new=(
            "return last.number - self.number > BACKLOG_MAX and last.length - "
            "self.length > BACKLOG_LENGTH"
        ),
        killed_by=(f"{FEED}::test_nothing_is_kept_for_a_watcher_who_is_too_far_back",),
    ),
    Mutant(
        name="idle_windows_kept",
        promise="P18",
        bug="The cache of encoded histories grows without bound.",
        file="engine/models/windows.py",
        symbol="Windows.keep",
        old="        while self._bytes > CACHE_BYTES:",
        new="        while self._bytes < 0:",
        killed_by=(f"{WINDOWS}::test_the_longest_unused_goes_first",),
    ),
    Mutant(
        name="window_of_another_view",
        promise="P9",
        bug="After a compaction the model is still sent the history as it was before.",
        file="engine/models/windows.py",
        symbol="Windows.get",
        old="if known is None or known.view != view:",
        new="if known is None:",
        killed_by=(f"{WINDOWS}::test_a_window_is_good_for_its_view_and_its_agent",),
    ),
    Mutant(
        name="one_person_takes_every_slot",
        promise="P24",
        bug="One person's messages may take all of the places for turns.",
        file="engine/turns/pump.py",
        symbol="TurnPump.hold_slot",
        old="has_room = self._room > 0 and self._in_use[who] < self._most",
        new="has_room = self._room > 0",
        killed_by=(
            (
                f"{PUMPS}"
                "::test_one_person_never_has_all_the_slots_and_the_next_goes_to_who_has_the_fewest"
            ),
        ),
    ),
    Mutant(
        name="rare_refusal_slows_everybody",
        promise="P24",
        bug="A 429 for a single call makes all others wait, although the server takes them.",
        file="engine/models/waiting/account_limit.py",
        symbol="AccountLimit.refused",
        old="if is_new and self._is_rare(now, few=_FEW):",
        new="if is_new and now < 0:",
        killed_by=(
            f"{LIMITED_SERVERS}::test_random_refusals_cost_nobody_but_the_refused[0.1-0.75-15-10]",
        ),
    ),
    Mutant(
        name="limit_forgotten_for_one_that_got_through",
        promise="P24",
        bug="Where many calls are refused, one that gets through ends the server's wait.",
        file="engine/models/waiting/account_limit.py",
        symbol="AccountLimit.reached",
        old="if now < self._held_until and self._is_rare(self._held_at):",
        new="if now < self._held_until:",
        killed_by=(
            f"{REACHING}::test_where_many_calls_are_refused_one_that_gets_through_ends_no_wait",
        ),
    ),
    Mutant(
        name="rate_of_the_server_not_measured",
        promise="P24",
        bug="After a wait, more calls are made than the server has just shown that it takes.",
        file="engine/models/waiting/account_limit.py",
        symbol="AccountLimit._measure",
        old="            self._rate_max = self._rate\n",
        new="            self._rate_max = math.inf\n",
        killed_by=(
            (
                f"{LIMITED_SERVERS}"
                "::test_a_crowd_is_let_through_at_the_rate_that_the_server_takes"
                "[60-in_each_second-named-0.04]"
            ),
        ),
    ),
    Mutant(
        name="wake_up_lost_when_somebody_leaves",
        promise="P24",
        bug="Whoever leaves while it is told keeps the next one from being woken.",
        file="engine/foundation/wakes.py",
        symbol="Bus.publish",
        old="for hear in tuple(self._hearing.get((topic, key), ())):",
        new="for hear in self._hearing.get((topic, key), ()):",
        killed_by=(
            (
                f"{WAKES}"
                "::test_whoever_leaves_while_it_is_told_is_not_told_again_and_keeps_nobody_from_hearing"
            ),
        ),
    ),
    Mutant(
        name="call_runs_before_it_is_recorded",
        promise="P7",
        bug="A tool call is not recorded before it runs, so a restart makes it again.",
        file="engine/turns/tools/tool_calls.py",
        symbol="ToolCalls.run",
        old="                await self._ledger.append(begun)",
        new="                await asyncio.sleep(0)",
        killed_by=(f"{ONCE_MEANS_ONCE}::test_a_deadly_tool_runs_once",),
    ),
    Mutant(
        name="call_that_cannot_work_is_run",
        promise="P13",
        bug="A call about which nobody was asked, because it cannot work, is run all the same.",
        file="engine/turns/tools/permissions.py",
        symbol="Permissions._permitted",
        old="            return Refuse(text=traits.problem, ending=CallEnding.FAILED)",
        new='            return Run(why="nothing happens")',
        killed_by=(
            f"{TOOL_CALLS}::test_what_is_said_to_be_impossible_is_not_run_without_an_approval",
        ),
    ),
    Mutant(
        name="changed_call_runs",
        promise="P16",
        bug="What was allowed runs although it would do something else by now.",
        file="engine/turns/tools/permissions.py",
        symbol="Permissions.is_as_asked",
        old="traits, outlook) == digest",
        new='traits, outlook) != ""',
        killed_by=(
            "tests/e2e/test_approvals.py::test_what_has_changed_since_it_was_shown_is_not_done",
        ),
    ),
    Mutant(
        name="later_denial_ignored",
        promise="P13",
        bug="A call that a rule denies by now runs because a person had allowed it before.",
        file="engine/turns/tools/permissions.py",
        symbol="Permissions._permitted",
        old="(await self._denied(backend, call) if is_approved else None) or verdict",
        new="(None if is_approved else None) or verdict",
        killed_by=(
            f"{TOOL_CALLS}::test_a_rule_that_was_added_while_people_were_asked_wins_over_their_answer",
        ),
    ),
    Mutant(
        name="questions_without_a_bound",
        promise="P18",
        bug="An answer with many calls asks people as many questions at once.",
        file="engine/turns/tools/permissions.py",
        symbol="Permissions._bound",
        old="for call, question in asks[AT_ONCE_MAX:]:",
        new="for call, question in asks[:0]:",
        killed_by=(
            (
                "tests/sim/test_floods_and_circles.py"
                "::test_an_answer_with_many_calls_asks_a_few_questions_and_denies_the_rest"
            ),
        ),
    ),
    Mutant(
        name="call_of_unknown_fate_repeated",
        promise="P7",
        bug="A call that may have happened is made again because the model asks for it again.",
        file="engine/turns/tools/permissions.py",
        symbol="Permissions._permitted",
        old="        is_repeated = may_have_happened(call, events)",
        new="        is_repeated = False",
        killed_by=(f"{ONCE_MEANS_ONCE}::test_a_deadly_tool_runs_once",),
    ),
    Mutant(
        name="turn_timeout_never_started",
        promise="P18",
        bug="A turn may run for ever.",
        file="engine/turns/runner.py",
        symbol="Runner._run_in_time",
        old="                time_limit(self._services.limits.turn_timeout_s),",
        new="                time_limit(None),",
        killed_by=(f"{RUNNING}::test_a_turn_that_takes_too_long_is_ended_and_keeps_what_was_said",),
    ),
    Mutant(
        name="part_on_its_way_sent_again",
        promise="P3",
        bug="A part that may still arrive is sent again at once.",
        file="engine/delivery/reconciling.py",
        symbol="Reconciler._found",
        old="elif 0 <= age_s < LATE_S:",
        new="elif 0 <= age_s < 0:",
        killed_by=(f"{RECONCILING}::test_a_part_that_may_still_be_on_its_way_is_not_sent_again",),
    ),
    Mutant(
        name="twin_taken_for_the_lost_part",
        promise="P3",
        bug="A message of another part with the same words is taken for the lost one.",
        file="engine/delivery/reconciling.py",
        symbol="Reconciler._ask",
        old="if held_s or rivals.has_twin:",
        new="if held_s:",
        killed_by=(
            f"{RECONCILING}::test_nothing_is_looked_for_while_the_same_words_are_being_sent",
        ),
    ),
    Mutant(
        name="looked_for_during_a_named_wait",
        promise="P15",
        bug="A platform that wants a pause is asked about a part.",
        file="engine/delivery/reconciling.py",
        symbol="Reconciler._ask",
        old="if held_s or rivals.has_twin:",
        new="if rivals.has_twin:",
        killed_by=(f"{RECONCILING}::test_nothing_is_looked_for_while_the_platform_wants_a_pause",),
    ),
    Mutant(
        name="message_of_another_part_found",
        promise="P3",
        bug="A message that belongs to another part is taken for the lost one.",
        file="engine/delivery/reconciling.py",
        symbol="Reconciler._sought",
        old="            owned=rivals.receipts,\n",
        new="            owned=frozenset(),\n",
        killed_by=(f"{RECONCILING}::test_what_belongs_to_other_parts_is_told_to_the_platform",),
    ),
    Mutant(
        name="bubble_in_doubt_for_a_day",
        promise="P2",
        bug="Final words wait for a day behind a bubble of which nobody can tell.",
        file="engine/delivery/reconciling.py",
        symbol="Reconciler._wait",
        old="patience_s = BUBBLE_S if part.step is DeliveryStep.BUBBLE else self._expire_s",
        new="patience_s = self._expire_s",
        killed_by=(f"{RECONCILING}::test_a_platform_that_cannot_tell_is_asked_for_so_long",),
    ),
    Mutant(
        name="broken_adapter_tried_for_ever",
        promise="P18",
        bug="A part on which an adapter breaks is tried for ever.",
        file="engine/delivery/reconciling.py",
        symbol="Reconciler.unforeseen",
        old="part.step in REPEATABLE and part.attempts < BROKEN_TRIES_MAX",
        new="part.step in REPEATABLE",
        killed_by=(
            f"{RECONCILING}::test_an_adapter_that_breaks_is_tried_again_only_where_nothing_shows_twice",
        ),
    ),
    Mutant(
        name="request_of_another_agent",
        promise="P12",
        bug="An agent that stands in is sent the request of the one that failed.",
        file="engine/turns/model_calls.py",
        symbol="ModelCalls._prepare",
        old="key = (backend.name, len(self._ledger.events))",
        new='key = ("", len(self._ledger.events))',
        killed_by=(
            f"{RUNNING}::test_an_agent_that_stands_in_gets_a_request_and_a_reservation_of_its_own",
        ),
    ),
    Mutant(
        name="steer_lost_by_a_restart",
        promise="P1",
        bug="A message that was sent to a turn before a restart is not taken by its next attempt.",
        file="engine/turns/ledger.py",
        symbol="Ledger.__init__",
        old="self._has_steers = has_untaken_steers(self.events)",
        new="self._has_steers = False",
        killed_by=(f"{PUMPS}::test_what_was_sent_to_a_turn_before_a_restart_is_taken_after_it",),
    ),
    Mutant(
        name="interruption_told_at_each_turn",
        promise="P8",
        bug="An interruption that the model answers with a call is told again.",
        file="engine/turns/model_calls.py",
        symbol="ModelCalls._say",
        old="append([*scribe.acknowledgements, said, *then], origin=self._origin())",
        new="append([said, *then], origin=self._origin())",
        killed_by=(
            f"{PUMPS}::test_an_interruption_is_told_once_where_the_model_answers_with_a_call",
        ),
    ),
    Mutant(
        name="repeat_not_told",
        promise="P3",
        bug="A platform is not told that a part may have arrived before.",
        file="engine/delivery/effects.py",
        symbol="_post",
        old="is_repeat=part.attempts > 1",
        new="is_repeat=part.attempts > 2",
        killed_by=(f"{PUMPS}::test_a_part_that_is_sent_again_says_so",),
    ),
    Mutant(
        name="other_form_not_counted",
        promise="P15",
        bug="The same words in another form are a call that the pace does not count.",
        file="engine/delivery/outbox.py",
        symbol="OutboxPump._perform",
        old="        surface.pacer.count(part.address.place)\n",
        new="",
        killed_by=(f"{PUMPS}::test_the_same_words_in_another_form_count_as_another_call",),
    ),
    Mutant(
        name="access_reviewed_at_the_start_alone",
        promise="P13",
        bug="A person who has lost access is asked whether their turn is to go on.",
        file="engine/turns/reaper.py",
        symbol="Reaper.step",
        old="if ended or self._is_first:",
        new="if self._is_first:",
        killed_by=(
            f"{REAPER}::test_who_may_speak_is_asked_at_the_start_and_whenever_an_attempt_has_ended",
        ),
    ),
    Mutant(
        name="suspects_forgotten",
        promise="P7",
        bug="A turn of a suspect that waits for its turn is never taken up.",
        file="engine/turns/reaper.py",
        symbol="Reaper.resume",
        old="        self.is_holding_back = resumed.is_holding_back\n",
        new="",
        killed_by=(f"{REAPER}::test_the_pump_is_told_whether_suspects_wait",),
    ),
    Mutant(
        name="claims_without_a_lease",
        promise="P21",
        bug="A node that has lost its lease goes on claiming turns.",
        file="engine/turns/pump.py",
        symbol="TurnPump.let_go",
        old="        self._is_away = True\n",
        new="",
        killed_by=(
            f"{PUMPS}::test_a_node_without_its_lease_claims_nothing_until_it_has_joined_again",
        ),
    ),
    Mutant(
        name="begins_without_a_lease",
        promise="P21",
        bug="A node that has lost its lease begins the turn of each message that it takes.",
        file="engine/turns/pump.py",
        symbol="TurnPump.hold_slot",
        old="is_steady = not (self._is_unsure or self._is_looking or self._is_away)",
        new="is_steady = not (self._is_unsure or self._is_looking)",
        killed_by=(
            f"{PUMPS}::test_a_node_without_its_lease_claims_nothing_until_it_has_joined_again",
        ),
    ),
    Mutant(
        name="notice_ends_its_turn",
        promise="P3",
        bug="A notice whose fate is unknown ends the turn that it is about.",
        file="engine/turns/ledger.py",
        symbol="Ledger.tell",
        old="        except (Transient, Ambiguous) as error:\n            log",
        new="        except Transient as error:\n            log",
        killed_by=(
            f"{PUMPS}::test_what_people_are_told_beside_a_turn_is_tried_once_and_ends_nothing",
        ),
    ),
    Mutant(
        name="program_told_of_a_wait",
        promise="P12",
        bug="A notice for people is put into the conversation of a program.",
        file="engine/turns/model_calls.py",
        symbol="ModelCalls._tell_of_wait",
        old=" and self._ledger.queued.kind == TurnKind.MESSAGE:",
        new=":",
        killed_by=(f"{MODEL_AWAY}::test_a_program_is_told_of_no_wait",),
    ),
    Mutant(
        name="window_forgotten_over_a_restart",
        promise="P9",
        bug="After a restart every conversation is refused once more before it is summarised.",
        file="store/operations/sessions/room.py",
        symbol="learn",
        old="if exceeded.window:",
        new="if not exceeded.window:",
        killed_by=("tests/contract/test_store_room.py::test_a_named_window_is_known_from_then_on",),
    ),
    Mutant(
        name="room_made_again_and_again",
        promise="P9",
        bug="A turn that cannot fit summarises and asks again without end.",
        file="domain/turn/overflow.py",
        symbol="lacks_room",
        old=" and room_sought(events) is None",
        new="",
        killed_by=(
            "tests/unit/test_overflow.py::test_room_is_made_once_and_then_the_model_is_asked_again",
        ),
    ),
    Mutant(
        name="tool_asks_a_model_without_end",
        promise="P23",
        bug="A tool asks the model of its agent as often as it likes in one call.",
        file="engine/turns/beside/model_words.py",
        symbol="ModelWords.ask",
        old="if self._asked > ASKS_MAX:",
        new="if not self._asked:",
        killed_by=(f"{SAMPLING}::test_a_flood_of_questions_to_the_model_is_answered_a_few_times",),
    ),
    Mutant(
        name="tool_asks_a_model_beyond_the_budget",
        promise="P23",
        bug="A tool asks the model of its agent although no budget has room for it.",
        file="engine/turns/beside/model_words.py",
        symbol="ModelWords._ask",
        old="        if refused:\n",
        new="        if refused is None:\n",
        killed_by=(
            f"{SAMPLING}::test_what_a_server_asks_the_model_fits_the_budgets_or_is_refused",
        ),
    ),
    Mutant(
        name="model_asked_after_the_call",
        promise="P23",
        bug="A model goes on writing for a call that has ended, and nobody is charged for it.",
        file="engine/turns/tools/tool_calls.py",
        symbol="_Work._run",
        old="            self._words.end()\n",
        new="            pass\n",
        killed_by=(f"{SAMPLING}::test_the_model_is_left_alone_once_the_call_is_over",),
    ),
    Mutant(
        name="change_by_another_taken_for_the_authors",
        promise="P12",
        bug="Whoever changes or deletes a message on the platform counts as its author.",
        file="engine/inbound/inlet.py",
        symbol="AccountInlet._welcome",
        old="is_nameless = author is not None and not arrival.sender.id",
        new="is_nameless = author is not None",
        killed_by=(f"{RECEIVING}::test_nobody_changes_or_deletes_what_another_person_wrote",),
    ),
    Mutant(
        name="collected_in_silence",
        promise="P11",
        bug="Who is waited for sees nothing until the turn begins.",
        file="engine/inbound/inlet.py",
        symbol="AccountInlet._welcome",
        old="            if update.collect_ms and accepted.effect in _WAITING_FOR_MORE:",
        new="            if update.album and accepted.effect in _WAITING_FOR_MORE:",
        killed_by=(
            (
                "tests/sim/test_collected.py::"
                "test_who_is_waited_for_sees_at_once_that_the_message_was_taken"
            ),
        ),
    ),
    Mutant(
        name="overheard_in_threads_that_never_begin",
        promise="P12",
        bug="What people say among themselves is kept under a thread that never begins.",
        file="engine/inbound/inlet.py",
        symbol="AccountInlet._overhear",
        old='thread = "" if begins_thread(arrival, terms) else arrival.thread',
        new="thread = thread_of(arrival, terms)",
        killed_by=(f"{GROUPS}::test_each_question_may_have_a_thread_of_its_own_or_none",),
    ),
)
