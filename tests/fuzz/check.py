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
    """How much of the outputs the oracle decided.

    Every output that has elements counts as one, so a single large one cannot speak for all.
    """

    elements: int = 0
    outputs: int = 0
    decided: float = 0.0

    def add(self, decided: int, elements: int) -> None:
        """Count an output of which `decided` elements were judged."""
        self.elements += elements
        if elements:
            self.outputs += 1
            self.decided += decided / elements

    @property
    def share(self) -> float:
        """Decided part of an output, on average."""
        return self.decided / max(self.outputs, 1)


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
        decided = judge(name, got, value.dtype, allowed[value.name])
        tally.add(decided, np.asarray(got).size)
    assert not list(returned), f"{what}: more outputs are returned than the fusion has"


def judge_inputs(
    what: str, graph: FusionGraph, arrays: dict[str, Any], before: dict[str, Any]
) -> None:
    """Inputs that no output aliases are as they were, bit by bit."""
    changed = {output.alias_of for output in graph.outputs}
    for name, array in arrays.items():
        if name not in changed:
            assert np.array(array).tobytes() == before[name].tobytes(), f"{what}: {name} changed"
