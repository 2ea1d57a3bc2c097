"""Translates what the package makes of a server's words into those of a link."""

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import mcp_types as types
import msgspec

from perdure.domain.errors import Permanent
from perdure.tools.mcp.link import (
    SCHEMA_BYTES_MAX,
    FilePiece,
    ListedArgument,
    ListedPrompt,
    ListedResource,
    ListedTool,
    Piece,
    PointerPiece,
    ServerAnswer,
    WordsPiece,
)
from perdure.tools.mcp.server_log import ServerLog


def answer_of(result: types.CallToolResult) -> ServerAnswer:
    """Return what a tool has answered."""
    structured = result.structured_content
    return ServerAnswer(
        pieces=tuple(map(_piece, result.content)),
        structured="" if structured is None else _json(structured),
        has_failed=result.is_error,
    )


def content_of(result: types.ReadResourceResult) -> ServerAnswer:
    """Return what a resource holds."""
    return ServerAnswer(pieces=tuple(map(_held, result.contents)))


def messages_of(result: types.GetPromptResult) -> ServerAnswer:
    """Return the messages of a prompt."""
    pieces = []
    for message in result.messages:
        piece = _piece(message.content)
        if message.role == "assistant" and isinstance(piece, WordsPiece):
            piece = msgspec.structs.replace(piece, text=f"Assistant: {piece.text}")
        pieces.append(piece)
    return ServerAnswer(pieces=tuple(pieces))


def _piece(content: types.ContentBlock) -> Piece:
    match content:
        case types.TextContent():
            return WordsPiece(text=content.text)
        case types.ImageContent() | types.AudioContent():
            return FilePiece(data=_decoded(content.data), mime=content.mime_type)
        case types.EmbeddedResource():
            return _held(content.resource)
        case types.ResourceLink():
            return PointerPiece(resource=_resource(content))


def _held(resource: types.TextResourceContents | types.BlobResourceContents) -> Piece:
    uri = str(resource.uri)
    if isinstance(resource, types.TextResourceContents):
        return WordsPiece(text=resource.text, uri=uri)
    mime = resource.mime_type or "application/octet-stream"
    name = uri.rstrip("/").rpartition("/")[2]
    return FilePiece(data=_decoded(resource.blob), mime=mime, name=name, uri=uri)


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data)
    except (binascii.Error, ValueError) as error:
        raise Permanent("what the server sends is no answer: a file of it is broken") from error


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def tools_of(listed: Iterable[types.Tool], log: ServerLog) -> list[ListedTool]:
    """Return the tools of a list, without those that nobody can call."""
    tools: dict[str, ListedTool] = {}
    for each in listed:
        parameters = _json(each.input_schema)
        if not each.name.strip() or each.name in tools:
            log.note(f"the tool {each.name!r} is left out: its name is empty, or listed twice")
        elif len(parameters) > SCHEMA_BYTES_MAX:
            size = f"{len(parameters):,} of {SCHEMA_BYTES_MAX:,} bytes"
            log.note(f"the tool {each.name!r} is left out: its schema is too long ({size})")
        else:
            hints = each.annotations or types.ToolAnnotations()
            tools[each.name] = ListedTool(
                name=each.name,
                description=each.description or "",
                parameters=parameters,
                is_read_only=hints.read_only_hint,
                is_destructive=hints.destructive_hint,
                is_idempotent=hints.idempotent_hint,
                is_open_world=hints.open_world_hint,
            )
    return list(tools.values())


def prompts_of(listed: Iterable[types.Prompt]) -> list[ListedPrompt]:
    """Return the prompts of a list."""
    return [
        ListedPrompt(
            name=each.name,
            description=each.description or each.title or "",
            arguments=tuple(
                ListedArgument(
                    name=argument.name,
                    description=argument.description or "",
                    is_required=bool(argument.required),
                )
                for argument in each.arguments or ()
            ),
        )
        for each in listed
        if each.name.strip()
    ]


def resources_of(
    listed: Iterable[types.Resource], templates: Iterable[types.ResourceTemplate]
) -> list[ListedResource]:
    """Return the resources of a list, and the templates of their addresses."""
    return [_resource(each) for each in listed] + [
        ListedResource(
            uri=each.uri_template,
            name=each.name,
            description=each.description or "",
            mime=each.mime_type or "",
            is_template=True,
        )
        for each in templates
    ]


def _resource(each: types.Resource) -> ListedResource:
    return ListedResource(
        uri=str(each.uri),
        name=each.name,
        description=each.description or "",
        mime=each.mime_type or "",
    )
