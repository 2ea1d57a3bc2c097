"""What the ports promise of a platform, as tests that any adapter can be held against.

    from perdure.testkit.adapter_suite import AdapterContract

    class TestMyPlatform(AdapterContract):
        @pytest.fixture
        async def case(self, tmp_path):
            case = MyCase(make(settings, around), clock=SystemClock())
            async with case.connected():
                yield case

pytest-asyncio runs them with `asyncio_mode = "auto"`. What a platform cannot do by its own
capabilities is skipped by name, like what its case calls `NotHere`.
"""

import pytest

# Before they are imported: a failure is to say what was compared.
pytest.register_assert_rewrite(
    "perdure.testkit.adapter_suite_hearing",
    "perdure.testkit.adapter_suite_refusing",
    "perdure.testkit.adapter_suite_showing",
)

from perdure.testkit.adapter_case import AdapterCase  # noqa: E402
from perdure.testkit.adapter_suite_hearing import ComingIn, Connecting  # noqa: E402
from perdure.testkit.adapter_suite_refusing import (  # noqa: E402
    Looking,
    Moving,
    NamedWaits,
    Refusing,
)
from perdure.testkit.adapter_suite_showing import Changing, GoingOut, Growing  # noqa: E402


class AdapterContract(
    Connecting, ComingIn, GoingOut, Changing, Growing, Refusing, NamedWaits, Looking, Moving
):
    """All of it. Override `case`."""

    @pytest.fixture
    def case(self) -> AdapterCase:
        raise NotImplementedError("override the fixture `case` with one for your platform")
