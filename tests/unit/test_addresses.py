"""Checks which addresses each platform knows, and what its threads and people are called."""

import pytest

from perdure.app.config.platforms import BUILT_IN, manifest

POSSIBLE = {
    "telegram": ("123456789", "42", "-500", "-1001234567890"),
    "discord": ("1032143452345678901", "41771983423143937"),
    "slack": ("C0123456789", "D01ABC", "G024BE7LH"),
    "matrix": ("!room:example.org", "!room:example.org:8448", "!31hneApxJ_1o-63Dm", "!r:[::1]:80"),
    "webhook": ("deploys",),
}  # fmt: skip
IMPOSSIBLE = {
    "telegram": (
        "Ada", "12 34", "-", "1.5", "123abc", "0", "-0", "042", "-042", "+42", "@ab", "@username",
        "@some_channel", "99999999999999999", "\u0664\u0662",
    ),
    "discord": ("general", "#general", "-5", "12x", "1", "042", "0132143452345678901", "1" * 21),
    "slack": ("general", "#general", "c0123", "X0123", "C", "U024BE7LH", "W024BE7LH"),
    "matrix": (
        "room", "@ada:example.org", "!", "!room :host", "#room:example.org", "!room:", "!:host",
        "!room:host:port", "!room:example.org:$event", "!room:a/b",
    ),
    "webhook": ("a b", "a/b"),
}  # fmt: skip
THREADS = {
    "telegram": ("7", "1234567"),
    "discord": ("1032143452345678902",),
    "slack": ("1712345678.123456",),
    "matrix": ("$event:example.org", "$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg"),
    "webhook": ("issue 7", "a:b"),
}
NO_THREADS = {
    "telegram": ("Ada", "0", "07", "-7", "7:8", "7 8"),
    "discord": ("general", "7", "-1032143452345678902"),
    "slack": ("topic", "1712345678", "1712345678.12", "C0123456789"),
    "matrix": ("event", "$", "!room:example.org", "$event:a b"),
    "webhook": (" ",),
}
NOBODY = {
    "telegram": ("Ada", "@ada", "0"),
    "discord": ("Ada", "7"),
    "slack": ("Ada", "C0123456789"),
    "matrix": ("Ada", "@ada", "Ada:example.org"),
    "webhook": (" ",),
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_platform_knows_its_addresses(name: str) -> None:
    form = manifest(name).address

    assert [place for place in POSSIBLE[name] if not form.takes(place)] == []
    assert [place for place in IMPOSSIBLE[name] if form.takes(place)] == []
    assert form.takes(form.example)
    assert not form.takes("")
    assert not form.takes("1\n2")


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_platform_knows_what_its_threads_and_people_are_called(name: str) -> None:
    form = manifest(name).address

    assert [each for each in THREADS[name] if not form.takes(form.example, each)] == []
    assert [each for each in NO_THREADS[name] if form.takes(form.example, each)] == []
    assert [each for each in NOBODY[name] if form.takes(form.example, "", each)] == []
