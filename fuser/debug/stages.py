"""The stages of a compilation by name, and what an observer is shown of one as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from fuser.core.errors import OptionError
from fuser.debug import kernel_text, schedule_text
from fuser.fusion import printing as fusion_text
from fuser.fusion.graph import FusionGraph
from fuser.kir.core import Kernel
from fuser.nest import printing as nest_text
from fuser.nest.nodes import LoopNest
from fuser.passes.pipeline import Scheduled

Stage: TypeAlias = Literal["fusion", "schedule", "nest", "kir", "cuda", "ptx", "sass"]
STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The text of one stage after one step.

    Attributes
    ----------
    step
        What made it: the stage's own name, or the pass.
    kernel
        Name of the kernel; None for the whole fusion.
    """

    stage: Stage
    step: str
    kernel: str | None
    text: str


def parse_stages(text: str, what: str) -> frozenset[Stage]:
    """Read a comma-separated list of stages; ``all`` means every one.

    Raises
    ------
    OptionError
        A name is none of `STAGES`.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in STAGES and name != "all"]
    if unknown:
        raise OptionError(
            f"{what}: {', '.join(map(repr, unknown))} is no stage; needed some of "
            f"{', '.join(STAGES)}, or all"
        )
    return frozenset(stage for stage in STAGES if stage in names or "all" in names)


def snapshot(step: str, ir: object) -> Snapshot | None:
    """Print what an observer was given; None for an object that is no stage."""
    match ir:
        case FusionGraph():
            return Snapshot("fusion", step, None, fusion_text.to_text(ir))
        case Scheduled(name, graph, schedule, facts):
            text = schedule_text.to_text(name, graph, schedule, facts)
            return Snapshot("schedule", step, name, text)
        case LoopNest():
            return Snapshot("nest", step, ir.name, nest_text.to_text(ir))
        case Kernel():
            return Snapshot("kir", step, ir.name, kernel_text.to_text(ir))
        case _:
            return None


_KERNEL = re.compile(r'^(?:__device__ __noinline__|extern "C")', re.M)
_ENTRY = re.compile(r"^\.(?:func|visible)\b", re.M)
"""Where a kernel begins in CUDA and in PTX: functions of outlined loops are part of it."""


def kernel_of(source: str) -> str:
    """Return the kernel of a CUDA source and its functions, without header and prelude."""
    found = _KERNEL.search(source)
    assert found is not None
    return source[found.start() :]


def readable(taken: Snapshot) -> str:
    """Return the text without what is the same in every kernel: prelude, sections, wide margins."""
    match taken.stage:
        case "cuda":
            return kernel_of(taken.text)
        case "sass" if "\n.text." in taken.text:
            lines = (
                taken.text[taken.text.index("\n.text.") + 1 :].partition("\n//---")[0].splitlines()
            )
            return "\n".join(
                line.replace(" " * 8, "", 1).replace("*/" + " " * 13, "*/") for line in lines
            )
        case "ptx" if (entry := _ENTRY.search(taken.text)) is not None:
            return taken.text[entry.start() :].expandtabs(8).rstrip()
        case _:
            return taken.text
