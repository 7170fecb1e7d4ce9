"""Random fusions with the arguments of their calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from fuser import FusionDefinition
from fuser.api.tensor import Tensor
from fuser.core.errors import InputError
from fuser.core.expr import Const
from fuser.fusion.bind import bind_sizes
from tests.fuzz.draft import Draft
from tests.fuzz.inputs import WRITABLE, ScalarArgument, TensorArgument
from tests.fuzz.operations import OPERATIONS, Operation
from tests.fuzz.source import Source

_WEIGHTED: tuple[Operation, ...] = tuple(op for op, weight in OPERATIONS for _ in range(weight))


@dataclass(frozen=True, slots=True)
class RandomFusion:
    """A definition and the arguments of one or two calls.

    Attributes
    ----------
    renamed
        Per call what symbolic extents of the first call become.
    """

    fd: FusionDefinition
    arguments: tuple[TensorArgument | ScalarArgument, ...]
    renamed: tuple[dict[int, int], ...]

    def calls(self) -> list[list[Any]]:
        """Return fresh arguments of every call; later ones only if the definition allows them."""
        first, *others = (self.call(renamed) for renamed in self.renamed)
        return [first, *(call for call in others if self.allows(call))]

    def call(self, renamed: dict[int, int]) -> list[Any]:
        """Return fresh arguments of one call."""
        return [argument.array(renamed) for argument in self.arguments]

    def allows(self, call: list[Any]) -> bool:
        """Whether the sizes agree with the definition."""
        try:
            bind_sizes(self.fd.fusion, *self.fd.named_inputs(call))
        except InputError:
            return False
        return True

    def __repr__(self) -> str:
        listed = "\n".join(f"  {a}" for a in self.arguments)
        return f"{self.fd!r}\narguments:\n{listed}\nextents of the calls: {self.renamed}"


def draw_fusion(source: Source) -> RandomFusion:
    """Draw a fusion of 2 to 15 operations."""
    draft = Draft(source)
    draft.new_input()
    wanted = source.integer(2, 15)
    attempts = 0
    while wanted and attempts < 60:
        attempts += 1
        if source.chance(5):
            draft.new_input()
        recent = draft.tensors[-3:] if source.chance(70) else draft.tensors
        result = source.pick(_WEIGHTED)(draft, source.pick(recent[::-1]))
        if isinstance(result, Tensor):
            draft.tensors.append(result)
            wanted -= 1
    add_outputs(draft)
    draft.fd.finish()
    sizes = {n for a in draft.inputs.values() for n, s in zip(a.sizes, a.symbolic) if s}  # noqa: B905
    renamed = {n: source.pick((n + 1, 2 * n, 1, n + 3)) for n in sorted(sizes)}
    calls = ({}, renamed) if renamed and source.chance(40) else ({},)
    return RandomFusion(draft.fd, tuple(draft.arguments), calls)


def add_outputs(draft: Draft) -> None:
    """Add the last tensor and a few others as outputs, some of them in place of inputs."""
    source = draft.source
    chosen = [draft.tensors[-1], *(source.pick(draft.tensors) for _ in range(source.integer(0, 3)))]
    taken: set[str] = set()
    for tensor in chosen:
        targets = [
            t for t in draft.tensors
            if t.name in draft.inputs and t.name not in taken and _replaces(draft, tensor, t)
        ]  # fmt: skip
        if targets and source.chance(25):
            target = source.pick(targets)
            taken.add(target.name)
            draft.fd.add_output(tensor, target)
        else:
            draft.fd.add_output(tensor)


def _replaces(draft: Draft, tensor: Tensor, target: Tensor) -> bool:
    constants = zip(tensor.value.shape, target.value.shape, strict=False)
    return (
        tensor.dtype is target.dtype
        and draft.inputs[target.name].layout in WRITABLE
        and draft.shape(tensor) == draft.shape(target)
        and all(not (isinstance(a, Const) and isinstance(b, Const)) or a == b for a, b in constants)
    )


@st.composite
def fusions(draw: Any) -> RandomFusion:
    """Strategy of random fusions."""
    return draw_fusion(Source.drawn(draw))
