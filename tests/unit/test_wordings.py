"""Checks that the refusal of a long request is recognized by its words, in the words of the usual
providers, and that no other complaint is taken for one."""

from typing import Final

import msgspec
import pytest

from perdure.agents.chat.complaints import Complaint, complaint
from perdure.agents.chat.failures import ModelServerInfo, refused, said_at_once, said_error
from perdure.agents.chat.wordings import ComplaintKind, NamedSizes, kind_of, sizes_of
from perdure.domain.outcomes import StopReason
from perdure.testkit.models.small_window import WORDINGS_OF_WINDOWS

HOST = ModelServerInfo(agent="main", model="m", url="http://host/v1")

# What providers say of a request that is too long: the body, the window and the tokens it names.
TOO_LONG = [
    (
        ("This model's maximum context length is 8192 tokens. However, your messages resulted in "
        "10,240 tokens. Please reduce the length of the messages."),
        (8192, 10240),
    ),
    ("Your input exceeds the context window of this model. Please adjust your input.", (0, 0)),
    ("prompt is too long: 215000 tokens > 200000 maximum", (200_000, 215_000)),
    (
        ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease "
        "input length or `max_tokens` and try again"),
        (200_000, 190_000),
    ),
    (
        ("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens "
        "(4000 in the messages, 1000 in the completion)."),
        (4096, 5000),
    ),
    ("The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
     (4096, 5000)),
    ("the request exceeds the available context size (4096 tokens), try increasing it", (4096, 0)),
    ("request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
     (4096, 5000)),
    ("the request exceeds the available context size. try increasing the context size", (0, 0)),
    ("Context size has been exceeded.", (0, 0)),
    ("the input length exceeds the context length", (0, 0)),
    ("prompt too long; exceeded max context length by 123 tokens", (0, 0)),
    (
        ("Trying to keep the first 5000 tokens when context the overflows. However, the model is "
        "loaded with context length of only 4096 tokens, which is not enough."),
        (4096, 0),
    ),
    ("The number of tokens to keep from the initial prompt is greater than the context length.",
     (0, 0)),
    ("Cannot truncate prompt with n_keep (5000) >= n_ctx (4096)", (4096, 5000)),
    (
        ("This endpoint's maximum context length is 131,072 tokens. However, you requested about "
        "150,000 tokens (140,000 of text input, 10,000 in the output)."),
        (131_072, 150_000),
    ),
    (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        (1_048_576, 1_200_000),
    ),
    ("The input token count exceeds the maximum number of tokens allowed 1048576.",
     (1_048_576, 0)),
    (
        ("Unable to submit request because the input token count is 33000 but model only supports "
        "up to 32768."),
        (32_768, 33_000),
    ),
    (
        ("Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum "
        "context length"),
        (32_768, 40_000),
    ),
    ("This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
     (131_072, 200_000)),
    ("Input is too long for requested model.", (0, 0)),
    ("too many tokens: total number of tokens in the prompt cannot exceed 4081", (4081, 0)),
    (
        "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
        (4096, 5000),
    ),
    ("Invalid request: Your request exceeded model token limit: 131072", (131_072, 0)),
    ("prompt token count of 100000 exceeds the limit of 64000", (64_000, 100_000)),
    ("context window exceeds limit (2013)", (0, 0)),
    ("The maximum context length is 128k tokens", (0, 0)),
    ("Please reduce the length of the messages or completion.", (0, 0)),
    (
        "Request too large for gpt-4 on tokens per min (TPM): Limit 10000, Requested 20000.",
        (0, 20_000),
    ),
]  # fmt: skip


@pytest.mark.parametrize("status", [400, 413, 422, 500, 503])
@pytest.mark.parametrize(("words", "sizes"), TOO_LONG)
def test_a_request_that_is_too_long_is_recognized_by_words(
    words: str, sizes: tuple[int, int], status: int
) -> None:
    said = complaint(msgspec.json.encode({"error": {"message": words, "code": status}}))

    failure = refused(HOST, status, said)

    assert failure.reason is StopReason.CONTEXT_EXCEEDED
    assert not failure.may_retry
    assert (failure.sizes.window, failure.sizes.asked) == sizes
    assert failure.as_stopped().window == sizes[0]
    assert said_at_once(HOST, said, retry_after_s=None).reason is StopReason.CONTEXT_EXCEEDED


@pytest.mark.parametrize(
    "words",
    [
        "CUDA out of memory. Tried to allocate 2 GiB; reduce the maximum context length",
        "model requires more system memory (9 GiB) than is available; context length 131072",
        "failed to allocate the KV cache for context size 131072: not enough memory",
        "Rate limit: 40,000 input tokens per minute for this model's maximum context length",
        "max_tokens is too large: 9000. This model supports at most 4096 completion tokens",
        "image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes",
        "temperature is too large",
        "input is too large to process. increase the physical batch size",
        "no such thing",
    ],
)
def test_another_complaint_is_no_long_request(words: str) -> None:
    said = complaint(msgspec.json.encode({"error": {"message": words}}))

    assert refused(HOST, 400, said).reason is not StopReason.CONTEXT_EXCEEDED
    assert refused(HOST, 500, said).reason is StopReason.PROVIDER_ERROR


def test_words_deep_inside_are_found() -> None:
    raw = '{"error":{"message":"maximum context length is 2000 tokens"}}'
    error = {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}
    said = complaint(msgspec.json.encode({"error": error}))

    assert kind_of(said) is ComplaintKind.WINDOW
    assert sizes_of(said) == NamedSizes(window=2000)


def test_numbers_beside_the_words_are_read() -> None:
    error = {"code": 400, "type": "exceed_context_size_error", "message": "too much",
             "n_prompt_tokens": 5000, "n_ctx": 4096}  # fmt: skip

    said = complaint(msgspec.json.encode({"error": error}))

    assert sizes_of(said) == NamedSizes(window=4096, asked=5000)


@pytest.mark.parametrize("status", [401, 402, 403])
def test_a_refusal_of_the_caller_is_no_long_request(status: int) -> None:
    said = Complaint("the context length is exceeded by your plan")

    assert refused(HOST, status, said).reason is StopReason.PROVIDER_REJECTED


@pytest.mark.parametrize("name", sorted(WORDINGS_OF_WINDOWS))
def test_the_scripted_wordings_name_the_window(name: str) -> None:
    words = WORDINGS_OF_WINDOWS[name].message.format(window=2000, asked=3210)

    found = sizes_of(Complaint(words))

    assert kind_of(Complaint(words)) is ComplaintKind.WINDOW
    assert found.window in (0, 2000)
    assert found.asked in (0, 3210)


# What servers say when they do not take what was asked, with the status that comes with it.
REFUSED: Final = [
    ("You uploaded an unsupported image. Please make sure your image is valid.", 400, "picture"),
    ("Could not process image", 400, "picture"),
    ("messages.0.content.0.image.source.base64: invalid base64 data", 400, "picture"),
    ("image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes", 400, "picture"),
    ("At most 0 image(s) may be provided in one request.", 400, "picture"),
    ("image input is not supported - hint: you may need to provide the mmproj", 500, "picture"),
    ("this model is missing data required for image input", 500, "picture"),
    ("No endpoints found that support image input", 404, "picture"),
    ("unknown variant `image_url`, expected `text` at line 1 column 90", 400, "picture"),
    ("'messages.1' : for 'role:user' value must be a string", 400, "picture"),
    ("Invalid type for 'messages[0].content': expected a string, but got an array", 400, "picture"),
    ("Input should be a valid string", 422, "picture"),
    ("content is not a string", 400, "picture"),
    ("this server only supports string content", 400, "picture"),
    ("messages: strings only", 422, "picture"),
    ("content cannot be a list", 400, "picture"),
    ("This server does not accept content parts", 400, "picture"),
    ("This model does not take pictures", 400, "picture"),
    (
        "Failed to deserialize: messages[0]: invalid type: sequence, expected a string",
        422,
        "picture",
    ),
    ("The image was too large", 413, "picture"),
    ("Unable to process input image. Please retry or report", 400, "picture"),
    ("Invalid prompt: your prompt was flagged as violating our usage policy.", 400, "message"),
    ("The response was filtered due to the content management policy", 400, "message"),
    ("Output blocked by content filtering policy", 400, "message"),
    ("Your chosen model requires moderation and your input was flagged", 403, "message"),
    ("Content Exists Risk", 400, "message"),
    ("Input data may contain inappropriate content.", 400, "message"),
    ("The request was rejected because it was considered high risk", 400, "message"),
    ("refused by policy", 400, "message"),
    ("Unsupported file type: application/zip", 400, None),
    ("The document could not be read", 422, None),
]


@pytest.mark.parametrize(("words", "status", "what"), REFUSED)
def test_a_refusal_says_what_it_is_about(words: str, status: int, what: str | None) -> None:
    said = complaint(msgspec.json.encode({"error": {"message": words}}))
    failure = refused(HOST, status, said)

    assert (failure.reason, failure.refused) == (StopReason.CONTENT_REFUSED, what)
    assert words.rstrip(".") in failure.detail
    assert "host" not in failure.detail
    assert not failure.may_retry


@pytest.mark.parametrize("status", [401, 402, 408, 409, 429, 502, 503, 504, 529])
@pytest.mark.parametrize("words", ["flagged by the moderation", "the image is broken", "policy"])
def test_other_statuses_are_no_refusal_of_content(words: str, status: int) -> None:
    said = complaint(msgspec.json.encode({"error": {"message": words}}))

    assert refused(HOST, status, said).reason is not StopReason.CONTENT_REFUSED


@pytest.mark.parametrize(
    "words",
    [
        "CUDA out of memory while loading the image encoder",
        "rate limit reached for images per minute",
        "temperature must be between 0 and 2",
        "Unrecognized request argument supplied: safety_identifier",
        "tools.0.function.name: String should match pattern",
        "The model `gpt-9` does not exist",
    ],
)
def test_a_wrong_setting_is_no_refusal_of_content(words: str) -> None:
    said = complaint(msgspec.json.encode({"error": {"message": words}}))

    assert refused(HOST, 400, said).reason is StopReason.PROVIDER_REJECTED


def test_an_error_in_a_stream_may_be_a_refusal_too() -> None:
    said = complaint(b'{"type": "invalid_request_error", "message": "flagged by our policy"}')

    assert said_at_once(HOST, said, retry_after_s=None).reason is StopReason.CONTENT_REFUSED
    assert said_error(HOST, said).reason is StopReason.CONTENT_REFUSED
