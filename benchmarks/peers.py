"""The implementations of a workload: ours, and the peers, which may not be installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.fusions import LAYER_EPSILON, RMS_EPSILON
from benchmarks.measure import Implementation
from benchmarks.results import OURS
from benchmarks.workloads import Case


@dataclass(frozen=True, slots=True)
class Peer:
    """Something to compare with.

    Attributes
    ----------
    module
        What must be importable.
    distribution
        What to install for it.
    """

    name: str
    title: str
    module: str
    distribution: str

    @property
    def installed(self) -> bool:
        """Whether it can be asked for."""
        return find_spec(self.module) is not None


PEERS = {
    peer.name: peer
    for peer in (
        Peer("torch", "torch eager", "torch", "torch"),
        Peer("compile", "torch.compile", "torch", "torch"),
        Peer("quack", "quack", "quack", "quack-kernels"),
        Peer("liger", "liger", "liger_kernel", "liger-kernel"),
    )
}


def choose(names: list[str]) -> tuple[list[Peer], list[str]]:
    """Return the peers of these names that are installed, and a line about each other one.

    Raises
    ------
    ValueError
        There is no peer of such a name.
    """
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise ValueError(f"--peers: {', '.join(unknown)}; needed some of {', '.join(PEERS)}")
    asked = [PEERS[name] for name in names]
    missing = [
        f"{peer.name}: not installed (pip install {peer.distribution})"
        for peer in asked
        if not peer.installed
    ]
    return [peer for peer in asked if peer.installed], missing


def ours(case: Case, inputs: list[Any], folder: Path) -> Implementation:
    """Return our implementation, with its cache on disk in an empty folder of its own."""

    def make() -> Callable[[], Any]:
        begin_with_cache(folder)
        compiled = case.build().compile(manual=case.workload.manual)
        return lambda: compiled(*inputs)

    return Implementation(OURS, make, compiles=True)


def begin_with_cache(folder: Path) -> None:
    """Forget the compiled kernels of this process; those in `folder` stay."""
    from fuser.runtime.cache import CUBINS

    os.environ["FUSER_CACHE_DIR"] = str(folder)
    CUBINS.forget()


def implementations(
    case: Case, inputs: list[Any], peers: list[Peer], folder: Path
) -> list[Implementation]:
    """Return ours and those of the peers that have this workload."""
    workload = case.workload.torch
    function = getattr(import_module("benchmarks.in_torch"), workload)
    found = [ours(case, inputs, folder)]
    for peer in peers:
        if peer.name == "torch":
            found.append(Implementation(peer.title, lambda: lambda: function(*inputs)))
        elif peer.name == "compile":
            found.append(compiled_by_torch(peer.title, function, inputs))
        elif (prepare := LIBRARIES[peer.name].get(workload)) is not None:
            found.append(Implementation(peer.title, partial(prepare, *inputs)))
    return found


def compiled_by_torch(
    title: str, function: Callable[..., Any], inputs: list[Any]
) -> Implementation:
    """Return ``torch.compile`` of a function for the shapes of these inputs."""
    import torch

    def make() -> Callable[[], Any]:
        torch._dynamo.reset()
        compiled = torch.compile(function, dynamic=False)
        return lambda: compiled(*inputs)

    return Implementation(title, make, compiles=True)


Prepare: TypeAlias = Callable[..., Callable[[], Any]]
"""Takes the inputs of a workload; returns what runs it once."""


def _quack_softmax(x: Any) -> Callable[[], Any]:
    run = import_module("quack.softmax").softmax
    return lambda: run(x)


def _quack_rms_norm(x: Any, weight: Any) -> Callable[[], Any]:
    run = import_module("quack.rmsnorm").rmsnorm
    return lambda: run(x, weight, eps=RMS_EPSILON)


def _quack_layer_norm(x: Any, weight: Any, bias: Any) -> Callable[[], Any]:
    run = import_module("quack.rmsnorm").layernorm_fwd
    w, b = weight.float(), bias.float()  # it takes no others
    return lambda: run(x, w, b, LAYER_EPSILON)


def _quack_rms_norm_backward(x: Any, weight: Any, dy: Any, rstd: Any) -> Callable[[], Any]:
    run = import_module("quack.rmsnorm").rmsnorm_bwd
    return lambda: run(x, weight, dy, rstd)[:2]


def _quack_cross_entropy(x: Any, target: Any) -> Callable[[], Any]:
    run = import_module("quack.cross_entropy").cross_entropy_fwd
    return lambda: run(x, target)


def _liger(name: str, *constants: Any) -> Prepare:
    def prepare(*inputs: Any) -> Callable[[], Any]:
        run = getattr(import_module("liger_kernel.transformers.functional"), name)
        return lambda: run(*inputs, *constants)

    return prepare


LIBRARIES: dict[str, dict[str, Prepare]] = {
    "quack": {
        "softmax": _quack_softmax,
        "rms_norm": _quack_rms_norm,
        "layer_norm": _quack_layer_norm,
        "rms_norm_backward": _quack_rms_norm_backward,
        "cross_entropy": _quack_cross_entropy,
    },
    "liger": {  # its cross entropy computes the gradient as well
        "silu_mul": _liger("liger_swiglu"),
        "softmax": _liger("liger_softmax"),
        "rms_norm": _liger("liger_rms_norm", RMS_EPSILON),
        "layer_norm": _liger("liger_layer_norm", LAYER_EPSILON),
    },
}
