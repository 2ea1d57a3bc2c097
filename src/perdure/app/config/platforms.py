"""Makes the configured platforms, and decides on which terms their people are served.

A platform's manifest says its name, its keys and what it needs, without importing the adapter.
Third parties add platforms through the entry point group `perdure.adapters`.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, cast

import msgspec

from perdure.domain.address import AddressForm
from perdure.domain.delivery import Display
from perdure.domain.errors import Rejected
from perdure.domain.outcomes import Busy
from perdure.domain.people.access import AccessRules, PlaceTerms, Terms
from perdure.ports.platform.adapter import Platform
from perdure.ports.platform.manifest import AdapterContext, Factory, FindAnswer, Manifest
from perdure.ports.platform.settings import AdapterSettings, PlaceSection
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.ports.system.outgoing import DIRECT, Outgoing

BUILT_IN: Final = ("discord", "matrix", "slack", "telegram", "webhook")
GROUP: Final = "perdure.adapters"
FOLDER: Final = "adapters"
NOBODY: Final = Terms(rules=AccessRules(is_closed=True))


def manifest(name: str) -> Manifest:
    """Return the manifest of a platform. Raises `Rejected` if no package provides it."""
    if name in BUILT_IN:
        found = import_module(f"perdure.adapters.{name}.manifest").MANIFEST
    else:
        from importlib import metadata  # noqa: PLC0415 - a start without others does without it

        entries = list(metadata.entry_points(group=GROUP, name=name))
        if not entries:
            raise Rejected(f"there is no platform {name}; known are {', '.join(names())}")
        found = entries[0].load()
    assert isinstance(found, Manifest)
    return found


def platform_of(name: str, settings: AdapterSettings) -> str:
    """Return the platform of a section: the one that it names, or else its own name."""
    return settings.platform or name


def platform_named(configured: Mapping[str, AdapterSettings], adapter: str) -> str:
    """Return the platform of the adapter that has this name in addresses."""
    return platform_of(adapter, configured[adapter]) if adapter in configured else adapter


def address_forms(configured: Mapping[str, AdapterSettings]) -> dict[str, AddressForm]:
    """Return the form of addresses of each configured section."""
    return {name: manifest(platform_of(name, each)).address for name, each in configured.items()}


def names() -> list[str]:
    """Return the names of all platforms that are installed."""
    from importlib import metadata  # noqa: PLC0415 - a start without others does without it

    others = {entry.name for entry in metadata.entry_points(group=GROUP)}
    return sorted({*BUILT_IN, *others})


def settings_by_name(configured: Iterable[str]) -> dict[str, type[AdapterSettings]]:
    """Return the settings that each of these platforms takes, and of others if not all of them are
    known."""
    asked = set(configured)
    # Third-party packages are looked for and imported only if they are configured. But if the file
    # names an unknown platform, all are loaded, so that the complaint can list them.
    if not asked <= set(BUILT_IN):
        known = set(names())
        asked = known if asked - known else asked
    return {name: manifest(name).settings for name in sorted(asked)}


def platforms(  # noqa: PLR0913 - what a platform is made with
    configured: Mapping[str, AdapterSettings],
    *,
    home: Path,
    clock: Clock,
    entropy: Entropy,
    hook_url: Callable[[str], str],
    answers: Callable[[str], FindAnswer],
    outgoing: Outgoing = DIRECT,
) -> dict[str, Platform]:
    """Import and make the configured platforms. Raises `Rejected` where a library is missing, and
    for a section with another name than its platform's, if that adapter cannot be called so."""
    made = {}
    for name, settings in configured.items():
        known = manifest(platform_of(name, settings))
        if known.needs and find_spec(known.needs) is None:
            raise Rejected(
                f"[adapters.{name}] needs a library that is not installed: "
                f"pip install 'perdure[{known.extra}]'",
                code="config",
            )
        module, _, function = known.factory.partition(":")
        factory = cast("Factory", getattr(import_module(module), function))
        folder = home / FOLDER / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        context = AdapterContext(
            clock=clock,
            entropy=entropy,
            folder=folder,
            name=name,
            hook_url=hook_url(name),
            answers=answers(name),
            outgoing=outgoing,
        )
        made[name] = factory(settings, context)
        if made[name].name != name:
            raise Rejected(
                f"[adapters.{name}] must be called [adapters.{known.name}]: the adapter of "
                f"{known.title} can have no other name",
                code="config",
            )
    return made


class Hosts:
    """Holds the terms on which each platform's people are served. A changed configuration applies
    at once."""

    def __init__(self, configured: Mapping[str, AdapterSettings]) -> None:
        self._terms: dict[str, Terms] = {}
        self.replace(configured)

    def replace(self, configured: Mapping[str, AdapterSettings]) -> None:
        """Apply changed settings. A platform that is no longer in the file stays connected until
        the restart, but serves nobody."""
        self._terms = {name: terms_of(settings) for name, settings in configured.items()}

    def terms(self, name: str) -> Terms:
        """Return the terms of a platform. One that is not configured serves nobody."""
        return self._terms.get(name, NOBODY)


def without_terms(configured: Mapping[str, AdapterSettings]) -> dict[str, AdapterSettings]:
    """Return the settings without the keys that apply at once. If these differ, a restart is
    needed."""
    kept = {
        field: getattr(AdapterSettings(), field)
        for field in (
            "allow", "allow_places", "allow_roles", "allow_bots", "operators", "pairing", "agent",
            "busy", "groups", "mention", "overhear", "collect_ms",
            "places",
        )
    }  # fmt: skip
    return {
        name: msgspec.structs.replace(settings, **kept) for name, settings in configured.items()
    }


def terms_of(settings: AdapterSettings) -> Terms:
    """Return the terms of one platform: who may speak, and how."""
    return Terms(
        rules=AccessRules(
            allow=frozenset({*settings.allow, *settings.operators}),
            places=frozenset(settings.allow_places),
            roles=frozenset(settings.allow_roles),
            bots=frozenset(settings.allow_bots),
            has_pairing=settings.pairing,
            needs_mention=settings.mention,
        ),
        operators=frozenset(settings.operators),
        agent=settings.agent or "",
        busy=None if settings.busy is None else Busy(settings.busy),
        is_per_person=settings.groups == "person",
        overhears=settings.overhear,
        collect_ms=settings.collect_ms,
        places=tuple(map(_place_terms, settings.places)),
    )


def _place_terms(section: PlaceSection) -> PlaceTerms:
    """Return the terms of one place."""
    return PlaceTerms(
        place=section.place,
        agent=section.agent or "",
        persona=section.persona or "",
        instructions=section.instructions,
        needs_mention=section.mention,
        has_own_threads=section.thread,
        topics=None if section.topics is None else frozenset(section.topics),
        ignored_topics=frozenset(section.ignore_topics),
        wake=section.wake,
        busy=None if section.busy is None else Busy(section.busy),
        overhears=section.overhear,
        collect_ms=section.collect_ms,
    )


def operators_of(configured: Mapping[str, AdapterSettings]) -> frozenset[str]:
    """Return the principals that the configuration makes operators."""
    return frozenset(
        f"{name}:{person}" for name, settings in configured.items() for person in settings.operators
    )


def display_of(settings: AdapterSettings) -> Display:
    """Return how much of the work a platform shows beside the answer."""
    shown = settings.display
    return Display(
        has_stream=settings.stream if shown.stream is None else shown.stream,
        has_tools=shown.tools != "off",
        has_reasoning=shown.reasoning != "off",
        has_footer=shown.footer,
    )
