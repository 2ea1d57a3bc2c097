"""What the places of each platform are called."""

import pytest

from perdure.app.platforms import BUILT_IN, manifest

POSSIBLE = {
    "telegram": ("123456789", "-1001234567890", "@some_channel"),
    "discord": ("1032143452345678901",),
    "slack": ("C0123456789", "D01ABC", "U024BE7LH"),
    "matrix": ("!room:example.org", "!room:example.org:8448", "!31hneApxJ_1o-63Dm"),
    "webhook": ("deploys",),
}  # fmt: skip
IMPOSSIBLE = {
    "telegram": ("Ada", "12 34", "-", "1.5", "@ab", "123abc"),
    "discord": ("general", "#general", "-5", "12x"),
    "slack": ("general", "#general", "c0123", "X0123"),
    "matrix": ("room", "@ada:example.org", "!", "!room :host"),
    "webhook": ("a b", "a/b"),
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_platform_knows_its_addresses(name: str) -> None:
    form = manifest(name).address

    assert [place for place in POSSIBLE[name] if not form.takes(place)] == []
    assert [place for place in IMPOSSIBLE[name] if form.takes(place)] == []
    assert form.takes(form.example)
    assert not form.takes("")
    assert not form.takes("1\n2")
