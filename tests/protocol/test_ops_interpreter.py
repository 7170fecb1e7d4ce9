"""The whole vocabulary on the interpreter, through the public API, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from matrix.pointwise import Execute
from matrix.suite import *  # noqa: F403

from fuser.api.definition import FusionDefinition

pytestmark = [pytest.mark.protocol, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


@pytest.fixture
def execute() -> Execute:
    def interpret(fd: FusionDefinition, inputs: Sequence[Any]) -> list[np.ndarray]:
        return fd.execute(inputs, backend="interpret")

    return interpret


@pytest.fixture
def numpy_ulps() -> float:
    """NumPy promises this of its vectorised f32 functions."""
    return 4.0
