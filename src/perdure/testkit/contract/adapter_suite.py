"""Joins the parts of the contract suite: tests of what the ports promise, for any adapter.

    from perdure.testkit.contract.adapter_suite import AdapterContract

    class TestMyPlatform(AdapterContract):
        @pytest.fixture
        async def case(self, tmp_path):
            case = MyCase(make(settings, around), clock=SystemClock())
            async with case.connected():
                yield case

pytest-asyncio runs them with `asyncio_mode = "auto"`. A test is skipped, with its reason, where the
platform's capabilities rule it out or its case raises `NotHere`.
"""

import pytest

# pytest can only rewrite modules that are not imported yet. Without the rewriting, a failed
# `assert` would not say which values it compared.
pytest.register_assert_rewrite(
    "perdure.testkit.contract.adapter_suite_asking",
    "perdure.testkit.contract.adapter_suite_groups",
    "perdure.testkit.contract.adapter_suite_hearing",
    "perdure.testkit.contract.adapter_suite_refusing",
    "perdure.testkit.contract.adapter_suite_showing",
)

from perdure.testkit.contract.adapter_case import AdapterCase  # noqa: E402
from perdure.testkit.contract.adapter_suite_asking import Asking, NamingReplies  # noqa: E402
from perdure.testkit.contract.adapter_suite_groups import InGroups  # noqa: E402
from perdure.testkit.contract.adapter_suite_hearing import ComingIn, Connecting  # noqa: E402
from perdure.testkit.contract.adapter_suite_refusing import (  # noqa: E402
    Looking,
    Moving,
    NamedWaits,
    Refusing,
)
from perdure.testkit.contract.adapter_suite_showing import Changing, GoingOut, Growing  # noqa: E402


class AdapterContract(
    Connecting,
    ComingIn,
    InGroups,
    NamingReplies,
    GoingOut,
    Asking,
    Changing,
    Growing,
    Refusing,
    NamedWaits,
    Looking,
    Moving,
):
    """Holds every test of the suite. Override the fixture `case`."""

    @pytest.fixture
    def case(self) -> AdapterCase:
        """Return the platform under test. Every subclass overrides this fixture."""
        raise NotImplementedError("override the fixture `case` with one for your platform")
