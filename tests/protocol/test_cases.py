"""Bug reports of comparable compilers, as behaviours, on the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from matrix.case_aliases import *  # noqa: F403
from matrix.case_shapes import *  # noqa: F403
from matrix.case_values import *  # noqa: F403
from matrix.pointwise import Execute

from fuser.api.definition import FusionDefinition

pytestmark = [pytest.mark.protocol, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


@pytest.fixture
def execute() -> Execute:
    def interpret(fd: FusionDefinition, inputs: Sequence[Any]) -> list[np.ndarray]:
        return fd.execute(inputs, backend="interpret")

    return interpret


@pytest.fixture
def repeats() -> int:
    return 2
