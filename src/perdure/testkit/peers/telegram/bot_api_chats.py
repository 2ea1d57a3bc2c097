"""Keeps the chats behind our Bot API server: the messages in them, and what a bot may do there."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.testkit.peers.shown import ShownMessage
from perdure.testkit.peers.telegram import bot_api_rules as rules

BOT: Final = {"id": 700, "is_bot": True, "first_name": "Perdure", "username": "perdure_bot"}
_ACTIONS: Final = frozenset({"typing", "upload_photo", "upload_document"})


class BotApiProblem(Exception):
    """Refuses a call in the server's own words."""

    def __init__(
        self, status: int, description: str, *, retry_after: int = 0, moved_to: int = 0
    ) -> None:
        super().__init__(description)
        self.status = status
        self.retry_after = retry_after
        self.moved_to = moved_to


class UploadedFile(msgspec.Struct, frozen=True):
    """Holds a file that the bot has sent."""

    name: str
    mime: str
    data: bytes


class Draft(msgspec.Struct, frozen=True):
    """Holds a draft as the bot has shown it."""

    chat: int
    id: int
    text: str
    is_rich: bool
    can_stop: bool


class Chats:
    """Holds the chats of one bot. `lost_threads` are topics that were deleted, by chat and number.
    While `refuses_marks` is set, only texts without marks are accepted."""

    def __init__(self) -> None:
        self.lost_threads: set[tuple[int, int]] = set()
        self.refuses_marks = False
        self.drafts: dict[int, Draft] = {}
        self.drafted: list[Draft] = []
        self.reactions: dict[tuple[int, int], list[Any]] = {}
        self.actions: list[tuple[int, str]] = []
        self.files: dict[str, bytes] = {}
        self.commands: list[Any] = []
        self.answered: list[str] = []
        self._messages: dict[tuple[int, int], dict[str, Any]] = {}
        self._numbers: Counter[int] = Counter()
        self._moves: dict[int, int] = {}

    def migrate(self, chat: int, to: int, *, keeps_messages: bool) -> None:
        """Turn a group into a supergroup, which has another number."""
        self._moves[chat] = to
        for place, number in [each for each in self._messages if each[0] == chat]:
            message = self._messages.pop((place, number))
            if keeps_messages:
                self._messages[to, number] = {**message, "chat": self.chat(to)}
        if keeps_messages:
            self._numbers[to] = self._numbers[chat]

    def chat(self, chat: int) -> dict[str, Any]:
        """Return a chat as Telegram describes it."""
        if chat > 0:
            return {"id": chat, "type": "private", "first_name": "Ada"}
        return {"id": chat, "type": "supergroup", "title": "Club"}

    def written(self, chat: int, text: str, fields: Mapping[str, object]) -> dict[str, Any]:
        """Store a message of a person, and return it."""
        person = {"id": max(chat, 42), "is_bot": False, "first_name": "Ada", "last_name": "L"}
        said = {"text": text} if text else {}
        return self._keep(chat, {"from": person, **said, **fields})

    def add_file(self, data: bytes, *, name: str = "file.bin") -> str:
        """Store bytes that the bot can fetch, and return the file's id."""
        path = f"files/{len(self.files)}-{name}"
        self.files[path] = data
        return path

    def drafted_in(self, chat: int) -> list[str]:
        """Return every text that a draft in this chat has shown."""
        return [draft.text for draft in self.drafted if draft.chat == chat]

    def message(self, chat: int, number: int) -> dict[str, Any]:
        return self._messages[chat, number]

    def buttons(self, chat: int, number: int) -> list[dict[str, str]]:
        """Return the buttons under a message, from the first to the last."""
        markup = self.message(chat, number).get("reply_markup", {})
        return [button for row in markup.get("inline_keyboard", []) for button in row]

    def shown(self, chat: int) -> list[ShownMessage]:
        """Return the bot's messages as people see them now."""
        return [
            ShownMessage(
                id=str(number),
                author=str(BOT["id"]),
                text=message.get("text") or message.get("caption") or "",
                thread=str(message.get("message_thread_id", "")),
                is_edited="edit_date" in message,
                raw=message,
            )
            for (place, number), message in sorted(self._messages.items(), key=lambda i: i[0][1])
            if place == chat and message["from"] == BOT
        ]

    def perform(
        self, method: str, params: Mapping[str, Any], uploads: Mapping[str, UploadedFile]
    ) -> object:
        """Perform a call of the bot. Raises `BotApiProblem` if it is refused."""
        self._refuse_place(params)
        match method:
            case "sendMessage" | "sendRichMessage":
                return self._send(params, rich=method == "sendRichMessage")
            case "sendPhoto" | "sendDocument" | "sendVoice":
                return self._send_file(method, params, uploads)
            case "sendMessageDraft" | "sendRichMessageDraft":
                return self._draft(params, rich=method == "sendRichMessageDraft")
            case "editMessageText":
                return self._edit(params)
            case "deleteMessage":
                return self._delete(params)
            case "getFile":
                return self._get_file(params)
            case _:
                return self._small(method, params)

    def _refuse_place(self, params: Mapping[str, Any]) -> None:
        """Refuse calls to a chat that has moved and to a topic that was deleted."""
        chat, thread = params.get("chat_id", 0), params.get("message_thread_id", 0)
        if chat in self._moves:
            words = "Bad Request: group chat was upgraded to a supergroup chat"
            raise BotApiProblem(400, words, moved_to=self._moves[chat])
        _refuse("message thread not found" if (chat, thread) in self.lost_threads else "")

    def _small(self, method: str, params: Mapping[str, Any]) -> object:
        """Perform one of the calls that need only a few lines."""
        match method:
            case "setMessageReaction":
                return self._react(params)
            case "sendChatAction":
                _refuse("" if params.get("action") in _ACTIONS else "wrong parameter action")
                self.actions.append((_chat(params), params["action"]))
            case "setMyCommands":
                self.commands = params["commands"]
            case "answerCallbackQuery":
                self.answered.append(params["callback_query_id"])
            case _:
                raise BotApiProblem(404, "Not Found: method not found")
        return True

    def _keep(self, chat: int, message: Mapping[str, Any]) -> dict[str, Any]:
        """Store a message under the next number of its chat."""
        self._numbers[chat] += 1
        number = self._numbers[chat]
        kept = {"message_id": number, "chat": self.chat(chat), "date": 1, **message}
        self._messages[chat, number] = kept
        return kept

    def _send(self, params: Mapping[str, Any], *, rich: bool) -> dict[str, Any]:
        chat = _chat(params)
        content = self._rich(params) if rich else self._text(params)
        self.drafts.pop(chat, None)
        return self._keep(chat, {"from": BOT, **content, **self._around(chat, params)})

    def _around(self, chat: int, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a message besides its content: buttons, topic, reply."""
        _refuse(rules.keyboard_problem(params.get("reply_markup")))
        around = {key: params[key] for key in ("reply_markup",) if key in params}
        if thread := params.get("message_thread_id"):
            around |= {"message_thread_id": thread, "is_topic_message": True}
        reply = params.get("reply_parameters")
        if reply and (chat, reply["message_id"]) in self._messages:
            around["reply_to_message"] = self._messages[chat, reply["message_id"]]
        elif reply and not reply.get("allow_sending_without_reply"):
            _refuse("message to be replied not found")
        return around

    def _send_file(
        self, method: str, params: Mapping[str, Any], uploads: Mapping[str, UploadedFile]
    ) -> dict[str, Any]:
        chat, field = _chat(params), method.removeprefix("send").lower()
        if field not in uploads:
            raise BotApiProblem(400, f"Bad Request: there is no {field} in the request")
        upload = uploads[field]
        if len(upload.data) > rules.UPLOAD_BYTES_MAX:
            raise BotApiProblem(413, "Request Entity Too Large")
        if field == "photo":
            _refuse(rules.photo_problem(upload.data))
        if "caption" in params:
            marks = params.get("caption_entities", [])
            self._refuse_marks(marks)
            _refuse(rules.text_problem(params["caption"], marks, rules.CAPTION_MAX))
        stored = {"file_id": self.add_file(upload.data, name=upload.name), "file_unique_id": "u"}
        about = {**stored, "file_name": upload.name, "mime_type": upload.mime}
        shown = [{**stored, "width": 1, "height": 1}]
        content = {"photo": shown} if field == "photo" else {field: about}
        caption = {"caption": params["caption"]} if "caption" in params else {}
        return self._keep(chat, {"from": BOT, **content, **caption, **self._around(chat, params)})

    def _draft(self, params: Mapping[str, Any], *, rich: bool) -> bool:
        chat, number = _chat(params), params.get("draft_id")
        _refuse("" if chat > 0 else "TEXTDRAFT_PEER_INVALID")
        _refuse("" if isinstance(number, int) and number else "DRAFT_ID_INVALID")
        content = self._rich(params) if rich else self._text(params)
        text = content["rich_message"]["markdown"] if rich else content["text"]
        draft = Draft(chat, number or 0, text, rich, bool(params.get("can_stop")))
        self.drafts[chat] = draft
        self.drafted.append(draft)
        return True

    def _edit(self, params: Mapping[str, Any]) -> dict[str, Any]:
        chat, number = _chat(params), params.get("message_id", 0)
        before = self._messages.get((chat, number))
        if before is None or before["from"] != BOT:
            raise BotApiProblem(400, "Bad Request: message to edit not found")
        content = self._rich(params) if "rich_message" in params else self._text(params)
        _refuse(rules.keyboard_problem(params.get("reply_markup")))
        markup = {"reply_markup": params["reply_markup"]} if "reply_markup" in params else {}
        changing = ("text", "entities", "rich_message", "reply_markup")
        rest = {key: value for key, value in before.items() if key not in changing}
        after = {**rest, **content, **markup}
        if all(before.get(key) == after.get(key) for key in changing):
            raise BotApiProblem(400, "Bad Request: message is not modified: nothing is different")
        self._messages[chat, number] = {**after, "edit_date": 2}
        return self._messages[chat, number]

    def _delete(self, params: Mapping[str, Any]) -> bool:
        if self._messages.pop((_chat(params), params.get("message_id", 0)), None) is None:
            raise BotApiProblem(400, "Bad Request: message to delete not found")
        return True

    def _react(self, params: Mapping[str, Any]) -> bool:
        target = (_chat(params), params.get("message_id", 0))
        _refuse("" if target in self._messages else "message to react not found")
        for reaction in params.get("reaction", []):
            _refuse("" if reaction["emoji"] in rules.REACTIONS else "REACTION_INVALID")
        self.reactions[target] = params.get("reaction", [])
        return True

    def _get_file(self, params: Mapping[str, Any]) -> dict[str, Any]:
        data = self.files.get(params.get("file_id", ""))
        if data is None:
            raise BotApiProblem(400, "Bad Request: invalid file_id")
        _refuse("file is too big" if len(data) > rules.DOWNLOAD_BYTES_MAX else "")
        return {"file_id": params["file_id"], "file_path": params["file_id"]}

    def _text(self, params: Mapping[str, Any]) -> dict[str, Any]:
        text, marks = params.get("text"), params.get("entities", [])
        self._refuse_marks(marks)
        _refuse(rules.text_problem(text, marks))
        return {"text": text, "entities": marks}

    def _rich(self, params: Mapping[str, Any]) -> dict[str, Any]:
        self._refuse_marks(params.get("rich_message"))
        _refuse(rules.rich_problem(params.get("rich_message")))
        return {"rich_message": params["rich_message"]}

    def _refuse_marks(self, marks: object) -> None:
        problem = "can't parse entities: can't find the end of the entity at byte offset 0"
        _refuse(problem if marks and self.refuses_marks else "")


def _chat(params: Mapping[str, Any]) -> int:
    chat = params.get("chat_id")
    if not isinstance(chat, int):
        raise BotApiProblem(400, "Bad Request: chat_id is empty")
    return chat


def _refuse(problem: str) -> None:
    """Raise a refusal with these words, unless they are empty."""
    if problem:
        raise BotApiProblem(400, f"Bad Request: {problem}")
