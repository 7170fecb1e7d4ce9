"""Run a random fusion and judge everything that it returns or changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.fusion.graph import FusionGraph
from tests.fuzz.enclosure import Arithmetic, Enclosure, enclose, judge
from tests.fuzz.fusions import RandomFusion


@dataclass(slots=True)
class Tally:
    """How many output elements there were and how many of them the oracle decided."""

    elements: int = 0
    decided: int = 0

    @property
    def share(self) -> float:
        """Decided elements among all."""
        return self.decided / max(self.elements, 1)


def check(fusion: RandomFusion, backend: str, arithmetic: Arithmetic, tally: Tally) -> None:
    """Execute every call of `fusion`; raise `AssertionError` on a wrong element."""
    for number, call in enumerate(fusion.calls()):
        arrays, scalars = fusion.fd.named_inputs(call)
        before = {name: np.array(array) for name, array in arrays.items()}
        allowed = enclose(fusion.fd.fusion, before, scalars, arithmetic)
        outputs = fusion.fd.execute(call, backend=backend)
        judge_outputs(f"call {number}", fusion.fd.fusion, outputs, arrays, allowed, tally)
        judge_inputs(f"call {number}", fusion.fd.fusion, arrays, before)


def judge_outputs(
    what: str,
    graph: FusionGraph,
    outputs: list[Any],
    arrays: dict[str, Any],
    allowed: dict[str, Enclosure],
    tally: Tally,
) -> None:
    """Judge returned outputs and those written into inputs."""
    returned = iter(outputs)
    for index, output in enumerate(graph.outputs):
        got = arrays[output.alias_of] if output.alias_of else next(returned)
        value = graph.value(output.value)
        name = f"{what}: output {index} ({value.name})"
        tally.decided += judge(name, got, value.dtype, allowed[value.name])
        tally.elements += np.asarray(got).size
    assert not list(returned), f"{what}: more outputs are returned than the fusion has"


def judge_inputs(
    what: str, graph: FusionGraph, arrays: dict[str, Any], before: dict[str, Any]
) -> None:
    """Inputs that no output aliases are as they were, bit by bit."""
    changed = {output.alias_of for output in graph.outputs}
    for name, array in arrays.items():
        if name not in changed:
            assert np.array(array).tobytes() == before[name].tobytes(), f"{what}: {name} changed"
