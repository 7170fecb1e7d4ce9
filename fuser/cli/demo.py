"""``python -m fuser demo``: two fusions through every stage, run here and checked."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from rich.console import Console
from rich.text import Text

from fuser.api.definition import FusionDefinition
from fuser.api.listen import listening
from fuser.cli import show
from fuser.cli.command import Command
from fuser.cli.recorder import Record, Recorder
from fuser.cli.run import run_text, shape_text
from fuser.core.dtypes import DataType
from fuser.debug.stages import STAGES, kernel_of
from fuser.runtime.driver import device_available

HIDDEN = 4096  # Llama 3 8B
EPSILON = 1e-5
ROWS_ON_GPU, ROWS_ON_HOST = 4096, 512
ARCH = "sm_90a"
ULP_LIMIT = 1.0
RUNS = 3

Arrays: TypeAlias = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A fusion, its inputs, and the same in NumPy with float64."""

    title: str
    fd: FusionDefinition
    inputs: Arrays
    reference: Callable[..., tuple[Any, ...]]


def execute(_: Namespace) -> int:
    """Show every case; 1 when a result is wrong."""
    out = show.console()
    rng = np.random.default_rng(0)
    rows = ROWS_ON_GPU if device_available() else ROWS_ON_HOST
    right = [show_case(out, case) for case in (bias_gelu(rng, rows), residual_rmsnorm(rng, rows))]
    show.heading(out, "See more")
    show.facts(
        out,
        [
            ("every stage", "python -m fuser explain FILE.py --html explain.html"),
            ("your script", "python -m fuser run FILE.py"),
            ("as files", f"FUSER_DUMP={','.join(STAGES)} python FILE.py"),
            ("this machine", "python -m fuser doctor"),
            ("examples", "the folders examples and docs of the source"),
        ],
    )
    return 0 if all(right) else 1


def bias_gelu(rng: np.random.Generator, rows: int) -> Case:
    """Return gelu(x + bias), the tanh form."""
    with FusionDefinition() as fd:
        bf16 = DataType.BFloat16
        x = fd.define_tensor(shape=[-1, HIDDEN], contiguity=[True, True], dtype=bf16)
        bias = fd.define_tensor(shape=[HIDDEN], contiguity=[True], dtype=bf16)
        biased = fd.ops.add(x, fd.ops.broadcast_in_dim(bias, fd.ops.shape(x), [1]))
        out = fd.ops.cast(fd.ops.gelu(biased, approximate="tanh"), bf16)
        fd.add_output(out)

    def reference(x: Any, bias: Any) -> tuple[Any, ...]:
        v = x + bias
        u = np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)
        return (v / (1 + np.exp(-2 * u)),)  # (1 + tanh(u)) / 2, which cancels for u << 0

    inputs = normal(rng, rows, HIDDEN), normal(rng, HIDDEN)
    return Case("gelu(x + bias)", fd, inputs, reference)


def residual_rmsnorm(rng: np.random.Generator, rows: int) -> Case:
    """Return h = x + residual and its RMS norm times a weight, both written."""
    with FusionDefinition() as fd:
        shape, bf16 = [-1, HIDDEN], DataType.BFloat16
        x = fd.define_tensor(shape=shape, contiguity=[True, True], dtype=bf16)
        residual = fd.define_tensor(shape=shape, contiguity=[True, True], dtype=bf16)
        weight = fd.define_tensor(shape=[HIDDEN], contiguity=[True], dtype=bf16)
        h = fd.ops.add(x, residual)
        h_out = fd.ops.cast(h, bf16)
        y = fd.ops.cast(fd.ops.rms_norm(h, [HIDDEN], weight, EPSILON), bf16)
        fd.add_output(h_out)
        fd.add_output(y)

    def reference(x: Any, residual: Any, weight: Any) -> tuple[Any, ...]:
        h = x + residual
        return h, h / np.sqrt(np.mean(h * h, axis=1, keepdims=True) + EPSILON) * weight

    inputs = normal(rng, rows, HIDDEN), normal(rng, rows, HIDDEN), normal(rng, HIDDEN)
    return Case("h = x + residual; rms_norm(h) * weight", fd, inputs, reference)


def normal(rng: np.random.Generator, *shape: int) -> Any:
    """Return a bf16 array of normal numbers."""
    return rng.standard_normal(shape, np.float32).astype(DataType.BFloat16.np)


def show_case(out: Console, case: Case) -> bool:
    """Run one case and print its stages; return whether the result is right."""
    recorder = Recorder()
    with listening(recorder):
        outputs = [case.fd.execute(case.inputs) for _ in range(RUNS)][-1]
    (record,) = recorder.records
    record.compile(ARCH)
    shape = " x ".join(map(str, case.inputs[0].shape))
    show.heading(out, f"{case.title}, bf16, {shape}")
    show.section(out, "Fusion")
    for taken in record.trace.of(None, "fusion"):
        show.code(out, taken.text, "fusion")
    for kernel in record.trace.kernels:
        show_kernel(out, record, kernel)
    wide = [np.asarray(a, np.float64) for a in case.inputs]
    names = [o.value for o in case.fd.fusion.outputs]
    errors = list(map(error_of, outputs, case.reference(*wide)))
    show.section(out, "Result")
    verdicts = [verdict(error) for error in errors]
    copies = "" if record.backend == "interpreter" else ", copies from and to the host included"
    ran = ("ran", run_text(record) + copies)
    show.facts(out, [ran, *zip(names, verdicts, strict=True)])
    compiled = not any(listing.failure for listing in record.listings)
    return compiled and all(error.ulps <= ULP_LIMIT for error in errors)


def show_kernel(out: Console, record: Record, name: str) -> None:
    """Print schedule, nest and CUDA of one kernel, and what it needs of the machine."""
    trace = record.trace
    show.section(out, f"Schedule of {name}")
    for taken in trace.of(name, "schedule"):
        show.code(out, taken.text, "schedule")
    show.section(out, f"Loop nest of {name}")
    show.code(out, trace.of(name, "nest")[-1].text, "nest")
    show.section(out, f"CUDA of {name}", "its prelude left out")
    listing = next(found for found in record.listings if found.kernel == name)
    show.code(out, kernel_of(listing.cuda), "cuda")
    assert record.program is not None
    kernel = next(k for k in record.program.kernels if k.name == name)
    out.print()
    show.facts(out, [("launch", shape_text(kernel)), (f"cubin, {ARCH}", resources(record, name))])


def resources(record: Record, name: str) -> str:
    """Print registers, shared memory and spills of a kernel's cubin."""
    listing = next(found for found in record.listings if found.kernel == name)
    if listing.cubin is None:
        return listing.sass.replace("// ", "")
    log = listing.cubin.log
    spills = log.spill_store_bytes + log.spill_load_bytes
    return (
        f"{log.registers} registers, {log.shared_bytes} bytes of shared memory, "
        f"{spills or 'no'} bytes spilled".replace("no bytes spilled", "no spills")
    )


@dataclass(frozen=True, slots=True)
class Error:
    """The largest difference from NumPy: in units of the last place, and relative."""

    ulps: float
    relative: float


def error_of(result: Any, expected: Any) -> Error:
    """Compare a bf16 result with float64; what is not finite is infinitely wrong."""
    info = DataType.from_numpy(result.dtype)
    got = np.asarray(result, np.float64)
    gap = np.abs(got - expected)
    digits, smallest = {DataType.BFloat16: (8, -133)}[info]
    _, exponent = np.frexp(expected)
    ulp = np.ldexp(1.0, np.maximum(exponent - digits, smallest))
    relative = gap / np.maximum(np.abs(expected), np.finfo(np.float64).tiny)
    if not np.isfinite(got).all():
        return Error(np.inf, np.inf)
    return Error(float((gap / ulp).max()), float(relative.max()))


def verdict(error: Error) -> Text:
    """Print an error and whether it is small enough."""
    right = error.ulps <= ULP_LIMIT
    text = (
        f"max error {error.ulps:.3f} bf16 ulp, {error.relative:.2g} relative, against NumPy in "
        f"float64 (limit {ULP_LIMIT:g} ulp)"
    )
    word = ("right: ", "bold green") if right else ("WRONG: ", "bold red")
    return Text.assemble(word, text)


COMMAND = Command(
    "demo", "show two fusions of a Llama layer from definition to checked result", execute
)
