"""Options and gates shared by all tests: golden files, the GPU, reproducible randomness."""

from __future__ import annotations

import importlib
import importlib.util
import os
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# Several test processes share a GPU: jax must not take most of its memory at the first array.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# FUSER_TEST_GPUS=2: the processes of pytest-xdist (gw0, gw1, ..) are dealt out to two GPUs.
if (gpus := os.environ.get("FUSER_TEST_GPUS")) and (
    worker := os.environ.get("PYTEST_XDIST_WORKER")
):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(int(worker.removeprefix("gw")) % int(gpus))

# Examples are drawn from the test's own name, so that a failure in CI is the same one here.
settings.register_profile(
    "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=5_000, print_blob=True)
settings.load_profile(os.environ.get("FUSER_HYPOTHESIS", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite golden files instead of comparing"
    )


def no_gpu_reason() -> str | None:
    """Return why tests marked ``gpu`` cannot run here, or None when they can."""
    if importlib.util.find_spec("fuser.runtime") is None:
        return "fuser.runtime does not exist yet"
    if importlib.util.find_spec("fuser.runtime.driver") is None:
        return "fuser.runtime.driver does not exist yet"
    driver = importlib.import_module("fuser.runtime.driver")
    return None if driver.device_available() else "no CUDA device on this machine"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    reason = no_gpu_reason() if on_gpu else None
    if reason is not None:
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that depend on the test's name alone."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--update-golden"))
