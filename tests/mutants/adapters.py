"""Lists the deliberate bugs in the adapters room: what platforms bring, and what they are sent."""

from typing import Final

from tests.mutants.mutant import Mutant

DISCORD_INBOUND: Final = "tests/unit/test_discord_inbound.py"
DISCORD_RENDER: Final = "tests/unit/test_discord_render.py"
MATRIX_INBOUND: Final = "tests/unit/test_matrix_inbound.py"
MATRIX_RENDER: Final = "tests/unit/test_matrix_render.py"
OUTGOING: Final = "tests/contract/test_outgoing.py"
SLACK_INBOUND: Final = "tests/unit/test_slack_inbound.py"
SLACK_WIRE: Final = "tests/e2e/test_slack_wire.py"
TELEGRAM_ADAPTER: Final = "tests/e2e/test_telegram_adapter.py"
TELEGRAM_INBOUND: Final = "tests/unit/test_telegram_inbound.py"
WEBHOOK_ADAPTER: Final = "tests/e2e/test_webhook_adapter.py"
WEBHOOK_INBOUND: Final = "tests/unit/test_webhook_inbound.py"
WEBHOOK_PRESETS: Final = "tests/unit/test_webhook_presets.py"
WEBHOOK_SIGNING: Final = "tests/unit/test_webhook_signing.py"

MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="replay_taken_for_a_new_message",
        promise="P11",
        bug="A request whose body alone is signed is a new message under another unsigned id.",
        file="adapters/webhook/presets.py",
        symbol="_signed",
        old=(
            "        return given if _ID.fullmatch(given) else _digest(body)\n"
            "    return _digest(body)"
        ),
        new=(
            "        return given if _ID.fullmatch(given) else _digest(body)\n"
            '    return headers.get("x-github-delivery", "") or _digest(body)'
        ),
        killed_by=(
            f"{WEBHOOK_PRESETS}::test_a_replay_of_a_signed_body_is_the_same_message_whatever_its_headers_say",
        ),
    ),
    Mutant(
        name="signed_time_never_too_old",
        promise="P13",
        bug="A request whose time is signed can be sent again at any later time.",
        file="adapters/webhook/presets.py",
        symbol="_in_time",
        old="if at_ms is None or abs(now_ms - at_ms) > signing.TOLERANCE_S * 1000:",
        new="if at_ms is None:",
        killed_by=(f"{WEBHOOK_PRESETS}::test_a_signed_time_is_good_for_five_minutes",),
    ),
    Mutant(
        name="signature_not_compared",
        promise="P13",
        bug="Any signature of a webhook is taken.",
        file="adapters/webhook/signing.py",
        symbol="verified",
        old="    if not _has_match(expected, given):",
        new="    if not expected or not given:",
        killed_by=(f"{WEBHOOK_SIGNING}::test_what_was_not_signed_like_this_is_refused",),
    ),
    Mutant(
        name="old_signature_taken",
        promise="P13",
        bug="A request that was recorded can be sent again at any later time.",
        file="adapters/webhook/signing.py",
        symbol="verified",
        old="if abs(now_ms / 1000 - int(timestamp)) > TOLERANCE_S:",
        new="if int(timestamp) - now_ms / 1000 > TOLERANCE_S:",
        killed_by=(f"{WEBHOOK_SIGNING}::test_a_signature_speaks_for_five_minutes",),
    ),
    Mutant(
        name="timestamp_not_signed",
        promise="P13",
        bug="The time of a request is not part of what is signed.",
        file="adapters/webhook/signing.py",
        symbol="signature",
        old='signed = b"%s.%d.%s" % (message.encode(), timestamp_s, body)',
        new='signed = b"%s.%d.%s" % (message.encode(), 0, body)',
        killed_by=(f"{WEBHOOK_SIGNING}::test_a_signature_is_that_of_the_reference",),
    ),
    Mutant(
        name="body_of_a_webhook_gives_commands",
        promise="P11",
        bug="Text that a webhook fills into a prompt can give commands.",
        file="adapters/webhook/inbound.py",
        symbol="_text",
        old='return f"\\\\{text.lstrip()}" if text.lstrip().startswith("/") else text',
        new="return text",
        killed_by=(f"{WEBHOOK_INBOUND}::test_only_whoever_signs_or_configures_gives_commands",),
    ),
    Mutant(
        name="slack_signature_not_compared",
        promise="P13",
        bug="Any request with a timestamp is taken for one of Slack's.",
        file="adapters/slack/hooks.py",
        symbol="is_genuine",
        old=(
            "return hmac.compare_digest(expected, headers.get(_SIGNATURE, "
            '"").encode(errors="replace"))'
        ),
        new="return bool(expected) and _SIGNATURE in headers",
        killed_by=(f"{SLACK_INBOUND}::test_only_fresh_and_right_signatures_are_accepted",),
    ),
    Mutant(
        name="old_slack_request_taken",
        promise="P13",
        bug="A request of Slack's that was recorded can be sent again later.",
        file="adapters/slack/hooks.py",
        symbol="is_genuine",
        old="    if abs(now_ms / 1000 - int(timestamp)) > AGE_S_MAX:",
        new="    if abs(now_ms / 1000 - int(timestamp)) > AGE_S_MAX * 1000:",
        killed_by=(f"{SLACK_INBOUND}::test_only_fresh_and_right_signatures_are_accepted",),
    ),
    Mutant(
        name="slack_mention_comes_twice",
        promise="P3",
        bug="A mention on Slack, which comes as two events, becomes two turns.",
        file="adapters/slack/inbound.py",
        symbol="_written",
        old="        external_id=MessageName(event.channel, event.ts).external_id,",
        new=(
            '        external_id=f"{MessageName(event.channel, '
            'event.ts).external_id}/{event.type}",'
        ),
        killed_by=(f"{SLACK_INBOUND}::test_a_mention_begins_a_thread_and_comes_twice_as_one",),
    ),
    Mutant(
        name="slack_unfurling_taken_for_an_edit",
        promise="P3",
        bug=(
            "Slack's own change of a message, such as the preview of a link, asks "
            "the question again."
        ),
        file="adapters/slack/inbound.py",
        symbol="_changed",
        old=" or (before and before.edited == now.edited)",
        new="",
        killed_by=(f"{SLACK_INBOUND}::test_a_change_that_nobody_made_is_no_edit",),
    ),
    Mutant(
        name="slack_broken_call_repeated",
        promise="P3",
        bug="A message that Slack may have posted before it failed is posted again.",
        file="adapters/slack/calls/refusals.py",
        symbol="refusal",
        old="        if is_repeatable:",
        new="        if is_repeatable or said.status:",
        killed_by=(f"{SLACK_WIRE}::test_what_a_post_meets_decides_whether_it_may_be_tried_again",),
    ),
    Mutant(
        name="own_words_heard_on_slack",
        promise="P13",
        bug="The bot on Slack answers its own messages.",
        file="adapters/slack/inbound.py",
        symbol="_sender",
        old="if message.user == bot.user or (message.bot_id and message.bot_id == bot.bot_id):",
        new="if message.user == bot.user and message.bot_id == bot.bot_id:",
        killed_by=(f"{SLACK_INBOUND}::test_what_no_other_person_said_is_no_arrival",),
    ),
    Mutant(
        name="telegram_edits_share_an_id",
        promise="P3",
        bug="The second edit of a message is taken for a repetition of the first.",
        file="adapters/telegram/inbound.py",
        symbol="_edit",
        old='external_id=f"{envelope.external_id}/edit/{message.edit_date or 0}/{digest}",',
        new='external_id=f"{envelope.external_id}/edit",',
        killed_by=(
            f"{TELEGRAM_INBOUND}::test_an_edit_names_its_message_and_each_edit_is_one_of_its_own",
        ),
    ),
    Mutant(
        name="telegram_edit_of_another_message",
        promise="P11",
        bug="An edit on Telegram does not name the message that was edited.",
        file="adapters/telegram/inbound.py",
        symbol="_edit",
        old="target=envelope.external_id,",
        new="target=message_name(message.chat.id, 0),",
        killed_by=(
            f"{TELEGRAM_INBOUND}::test_an_edit_names_its_message_and_each_edit_is_one_of_its_own",
        ),
    ),
    Mutant(
        name="command_for_another_bot_obeyed",
        promise="P13",
        bug="A command that was given to another bot is obeyed.",
        file="adapters/telegram/inbound.py",
        symbol="_message",
        old="if is_ours or called.is_for_another or not is_said(message):",
        new="if is_ours or not is_said(message):",
        killed_by=(f"{TELEGRAM_INBOUND}::test_a_command_for_another_bot_is_none_of_ours",),
    ),
    Mutant(
        name="forwarded_command_obeyed",
        promise="P11",
        bug="A command in a message that somebody passed on is obeyed.",
        file="adapters/telegram/inbound.py",
        symbol="_read",
        old=("    if forward is None:\n        return arrival"),
        new=('    if forward is None or said.startswith("/"):\n        return arrival'),
        killed_by=(f"{TELEGRAM_INBOUND}::test_a_forwarded_command_is_only_words",),
    ),
    Mutant(
        name="telegram_offset_too_early",
        promise="P1",
        bug="Telegram is told that an update was taken before it is stored.",
        file="adapters/telegram/receive.py",
        symbol="Receiving._handle",
        old=(
            "        await self._offer(update, bytes(raw), inlet)\n"
            "        if is_polled:\n"
            "            self._offset = update.update_id + 1"
        ),
        new=(
            "        if is_polled:\n"
            "            self._offset = update.update_id + 1\n"
            "        await self._offer(update, bytes(raw), inlet)"
        ),
        killed_by=(
            (
                f"{TELEGRAM_ADAPTER}"
                "::TestComingIn::test_an_update_is_offered_until_it_is_taken_and_none_is_skipped"
            ),
        ),
    ),
    Mutant(
        name="telegram_lost_send_repeated",
        promise="P3",
        bug="A message to Telegram whose answer was lost is sent again.",
        file="adapters/telegram/wire.py",
        symbol="Api.send",
        old=(
            "            return await self._call(method, body, "
            "timeout_s=self._patience_s, is_repeatable=False)"
        ),
        new=(
            "            return await self._call(method, body, "
            "timeout_s=self._patience_s, is_repeatable=True)"
        ),
        killed_by=(
            (
                f"{TELEGRAM_ADAPTER}"
                "::TestGoingWrong::test_an_unanswered_post_may_have_arrived_and_an_edit_may_be_repeated"
            ),
        ),
    ),
    Mutant(
        name="own_words_heard_on_discord",
        promise="P13",
        bug="The bot on Discord answers its own messages.",
        file="adapters/discord/inbound.py",
        symbol="envelope_of",
        old="if message.author.id == account or message.type not in _WRITTEN:",
        new="if message.type not in _WRITTEN:",
        killed_by=(f"{DISCORD_INBOUND}::test_our_own_words_are_no_arrival",),
    ),
    Mutant(
        name="discord_edit_without_its_message",
        promise="P11",
        bug="An edit on Discord does not name the message that was edited.",
        file="adapters/discord/inbound.py",
        symbol="envelope_of",
        old="        target=own_id,",
        new='        target=f"{own_id}/{message.edited_timestamp}",',
        killed_by=(f"{DISCORD_INBOUND}::test_an_edit_has_an_id_of_its_own_that_repeats",),
    ),
    Mutant(
        name="discord_nonce_too_long",
        promise="P3",
        bug="The key by which Discord knows a repeated message is too long, so it is ignored.",
        file="adapters/discord/bodies.py",
        symbol="nonce_of",
        old="hashlib.sha256(key.encode()).digest()[:8]",
        new="hashlib.sha256(key.encode()).digest()[:12]",
        killed_by=(f"{DISCORD_RENDER}::test_a_nonce_is_the_same_for_a_key_and_short",),
    ),
    Mutant(
        name="anybody_edits_on_matrix",
        promise="P12",
        bug="On Matrix an edit by somebody else changes a person's words.",
        file="adapters/matrix/inbound.py",
        symbol="_edit",
        old="if known is not None and (known.author != event.sender or not known.is_message):",
        new="if known is not None and not known.is_message:",
        killed_by=(f"{MATRIX_INBOUND}::test_an_edit_is_its_authors",),
    ),
    Mutant(
        name="unknown_room_taken_for_private",
        promise="P12",
        bug="A room whose size nobody knows is taken for a private one.",
        file="adapters/matrix/hearing/rooms.py",
        symbol="Rooms.kind",
        old="is_private = 1 <= room.joined <= 2 or room.id in self._direct",
        new="is_private = room.joined <= 2 or room.id in self._direct",
        killed_by=(f"{MATRIX_INBOUND}::test_a_room_of_unknown_size_is_a_group",),
    ),
    Mutant(
        name="sealed_file_with_an_open_address",
        promise="P14",
        bug="The address of an encrypted file stands in the open beside its keys.",
        file="adapters/matrix/render.py",
        symbol="file_message",
        old='url="" if keys else file.url,',
        new="url=file.url,",
        killed_by=(f"{MATRIX_RENDER}::test_a_sealed_file_has_no_address_in_the_open",),
    ),
    Mutant(
        name="matrix_event_too_large",
        promise="P15",
        bug="The size of a message counts its text alone, so some are too large for an event.",
        file="adapters/matrix/render.py",
        symbol="size",
        old="        for part in _rendered(text)",
        new="        for part in _rendered(text)[:1]",
        killed_by=(
            f"{MATRIX_RENDER}::test_every_piece_fits_an_event_even_as_an_edit_that_is_sealed",
        ),
    ),
    Mutant(
        name="telegram_hook_secret_not_compared",
        promise="P13",
        bug="Anybody may bring updates to the hook of the Telegram bot.",
        file="adapters/telegram/receive.py",
        symbol="Receiving.answer",
        old="if not hmac.compare_digest(given, self._hook_secret().encode()):",
        new="if not given:",
        killed_by=(f"{TELEGRAM_ADAPTER}::TestHook::test_nobody_else_is_heard",),
    ),
    Mutant(
        name="poll_of_another_message",
        promise="P12",
        bug="Whoever may send to a route reads the answers to others.",
        file="adapters/webhook/adapter.py",
        symbol="Webhook._tell",
        old="        if message != asked:",
        new="        if not message:",
        killed_by=(f"{WEBHOOK_ADAPTER}::test_polling_is_signed_for_the_id_asked_about",),
    ),
    Mutant(
        name="webhook_redirect_followed",
        promise="P14",
        bug="A callback that redirects leads the answer to another server.",
        file="adapters/webhook/wire.py",
        symbol="Wire.post",
        old="allow_redirects=False,",
        new="allow_redirects=True,",
        killed_by=(
            f"{WEBHOOK_ADAPTER}::test_what_a_callback_answers_decides_whether_it_is_tried_again",
        ),
    ),
    Mutant(
        name="edited_notice_is_a_persons",
        promise="P13",
        bug="Two bots can talk for ever by editing their messages into notices.",
        file="adapters/matrix/inbound.py",
        symbol="_edit",
        old="is_bot=words.msgtype == _NOTICE",
        new="is_bot=False",
        killed_by=(f"{MATRIX_INBOUND}::test_an_edit_that_makes_a_notice_is_a_bots",),
    ),
    Mutant(
        name="forward_gives_a_command",
        promise="P11",
        bug="A command that was forwarded is carried out.",
        file="adapters/matrix/inbound.py",
        symbol="_saying",
        old="    if forward is not None:\n",
        new='    if forward is not None and not text.startswith("/"):\n',
        killed_by=(f"{MATRIX_INBOUND}::test_a_forward_gives_no_command",),
    ),
    Mutant(
        name="two_clicks_at_one_instant_are_one",
        promise="P1",
        bug="Of two people who click at the same instant, the second is taken for a repetition.",
        file="adapters/slack/inbound.py",
        symbol="click_envelope",
        old="{click.user.id}/{action.action_ts}",
        new="{action.action_ts}",
        killed_by=(
            f"{SLACK_INBOUND}::test_two_people_who_click_at_the_same_instant_are_two_messages",
        ),
    ),
    Mutant(
        name="slack_called_past_the_proxy",
        promise="P14",
        bug="Slack is called directly although a proxy is configured for every call.",
        file="adapters/slack/wire.py",
        symbol="Wire.session",
        old="self._outgoing.session(",
        new="DIRECT.session(",
        killed_by=(
            f"{OUTGOING}::test_a_platform_is_reached_with_the_session_that_it_is_given[slack]",
        ),
    ),
    Mutant(
        name="gitlabs_signing_token_taken_as_it_is",
        promise="P13",
        bug="The token with which GitLab signs is taken as a bare secret, without a signature.",
        file="adapters/webhook/presets.py",
        symbol="_by_gitlab",
        old="    tokens = [key for key in keys if not _is_signing_token(key)]",
        new="    tokens = list(keys)",
        killed_by=(
            (
                "tests/unit/test_webhook_presets.py::"
                "test_where_gitlab_signs_nothing_else_proves_a_request"
            ),
        ),
    ),
)
