"""The user's own file: the fusions it executes, on the inputs it executes them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Implementation, Job
from benchmarks.operations import count_operations
from benchmarks.results import OURS
from fuser import FusionDefinition
from fuser.api.execute import bind, forget
from fuser.api.listen import listening, location_of
from fuser.api.validate import compare, host_copy, tolerance
from fuser.cli import show
from fuser.cli.script import run_script, unusable, whole
from fuser.fusion.reference import evaluate


@dataclass(frozen=True, slots=True)
class Call:
    """An execution that the file asked for.

    Attributes
    ----------
    file
        Name of the file, which names the fusions in it.
    manual
        Whether it runs by the schedule that was set by hand.
    """

    file: str
    fd: FusionDefinition
    inputs: tuple[Any, ...]
    manual: bool

    @property
    def family(self) -> str:
        """File and line of the definition."""
        where = location_of(self.fd)
        return self.file if where is None else f"{Path(where.file).name}:{where.line}"

    @property
    def name(self) -> str:
        """With the shapes of its arrays."""
        shapes = ["x".join(map(str, x.shape)) for x in self.inputs if hasattr(x, "shape")]
        return " ".join([self.family, ",".join(s for s in shapes if s)]).strip()


def calls_of(path: str) -> list[Call]:
    """Run the file as ``python -m fuser run`` does; return each fusion and shape once.

    Raises
    ------
    ValueError
        There is no file, it executes no fusion, or it failed, which has been said by then.
    """
    if what := unusable(Path(path)):
        raise ValueError(f"{path}: {what}")
    heard = _Calls(Path(path).name)
    with listening(heard):
        outcome = run_script(path, [], show.console(stderr=True), verbose=False)
    if whole(outcome).status:
        raise ValueError(f"{path}: ended with exit status {outcome.status}; needed 0")
    if not heard.calls:
        raise ValueError(
            f"{path}: runs no fusion; needed an execute() or a call of a @fuse function"
        )
    return list({(id(call.fd), call.manual, call.name): call for call in heard.calls}.values())


class _Calls:
    """A `fuser.api.listen.Listener` that keeps the inputs of every run, as they were before it."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.calls: list[Call] = []

    def called(self, fd: FusionDefinition, inputs: Sequence[Any], manual: bool) -> None:
        self.calls.append(Call(self.file, fd, tuple(map(copy_of, inputs)), manual))

    def building(self, fd: FusionDefinition, sizes: Any) -> Callable[[str, object], None]:
        return lambda step, ir: None

    def built(self, fd: FusionDefinition, program: Any, seconds: float) -> None:
        pass

    def ran(self, fd: FusionDefinition, program: Any, gpu: Any, seconds: float) -> None:
        pass


def job_on_gpu(call: Call, folder: Path) -> Job:
    """Return the job of a call, with its arrays on the GPU."""
    from benchmarks.gpu import to_gpu
    from benchmarks.peers import begin_with_cache

    inputs = [to_gpu(x) for x in call.inputs]

    def make() -> Callable[[], Any]:
        begin_with_cache(folder)
        forget(call.fd, call.manual)
        compiled = call.fd.compile(manual=call.manual)
        return lambda: compiled(*inputs)

    return Job(
        call.name, call.family, "plain_map", inputs, [Implementation(OURS, make, compiles=True)],
        checker(call), count_operations(call.fd, bind(call.fd, inputs, call.manual).env),
    )  # fmt: skip


def checker(call: Call) -> Callable[[tuple[Any, ...]], float]:
    """Return the check of a call's outputs against NumPy in float64, element by element.

    A fusion that writes into its inputs is run on copies of what the file gave it.
    """
    arrays, scalars = call.fd.named_inputs(call.inputs)
    host = {name: host_copy(array) for name, array in arrays.items()}
    precise = evaluate(call.fd.fusion, host, scalars, precise=True)
    rounded = evaluate(call.fd.fusion, host, scalars)
    outputs = call.fd.fusion.outputs
    returned = [output for output in outputs if output.alias_of is None]

    def check(found: tuple[Any, ...]) -> float:
        if len(returned) < len(outputs):  # the inputs of `found` were written over before
            copies = [copy_of(x) for x in call.inputs]
            found = tuple(call.fd.validate(copies, manual=call.manual))
        worst = 0.0
        for index, (output, array) in enumerate(zip(returned, found, strict=True)):
            expected, got = precise[output.value], host_copy(array)
            allowed = tolerance(call.fd.fusion, output, precise, rounded)
            compare(f"output {index} ({output.value})", got, expected, allowed)
            worst = max(worst, _by_norm(got, expected))
        return worst

    return check


def copy_of(item: Any) -> Any:
    """Return a copy of an array; other inputs stay what they are."""
    for name in ("clone", "copy"):  # torch's; NumPy's, cupy's and jax's
        if hasattr(item, "shape") and hasattr(item, name):
            return getattr(item, name)()
    return item


def _by_norm(got: Any, expected: Any) -> float:
    """Return the relative error by norms, 0 where there is nothing or infinity to compare."""
    wide = np.asarray(expected).astype(np.float64)
    difference = np.asarray(got).astype(np.float64) - wide
    norm = float(np.linalg.norm(wide))
    error = float(np.linalg.norm(difference)) / norm if norm else 0.0
    return error if np.isfinite(error) else 0.0
