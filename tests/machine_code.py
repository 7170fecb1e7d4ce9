"""Machine code of the kernels of parametrised tests, a few kernels at a time.

``nvdisasm`` takes half a second to start and milliseconds for a kernel. So the kernels of
neighbouring parameters are put into one translation unit, each source in a namespace of its own.
ptxas compiles kernels one by one: the instructions are those of a unit of one kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from fuser.codegen.emit import emit
from fuser.kir.core import Kernel
from fuser.runtime.log import CompileLog, parse_log
from fuser.runtime.nvrtc import compile_cubin
from fuser.runtime.sass import disassemble

T = TypeVar("T")
TOGETHER = 8
BUILT_IN = "using ::min, ::max;"  # overloads of the prelude would hide them
_SECTION = re.compile(r"^\t\.section\t\.text\.(?P<kernel>\w+)", re.MULTILINE)


def disassembled(kernels: Sequence[Kernel]) -> list[tuple[CompileLog, str]]:
    """Return what ptxas says of each kernel, and its section of the disassembly."""
    named = [replace(kernel, name=f"kernel{n}") for n, kernel in enumerate(kernels)]
    source = "".join(f"namespace of_{k.name} {{\n{BUILT_IN}\n{emit(k)}\n}}\n" for k in named)
    cubin = compile_cubin(source, named[0].name, "sm_90a", on_spill="ignore")
    text = disassemble(cubin.image)
    found = list(_SECTION.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)]
    sections = {m["kernel"]: text[m.start() : end] for m, end in zip(found, ends, strict=True)}
    assert sections.keys() == {k.name for k in named}, "a function that is not inlined"
    return [(parse_log(cubin.log.text, k.name), sections[k.name]) for k in named]


@dataclass
class MachineCode(Generic[T]):
    """Machine code by parameter, made with that of its neighbours when it is first asked for.

    Attributes
    ----------
    items
        All parameters, in the order of the tests.
    kernel_of
        Makes the kernel of one.
    """

    items: Sequence[T]
    kernel_of: Callable[[T], Kernel]
    made: dict[int, tuple[CompileLog, str]] = field(default_factory=dict)

    def __getitem__(self, item: T) -> str:
        """Return a kernel's machine code; raise `CompileError` for spills and local memory."""
        at = self.items.index(item)
        if at not in self.made:
            first = at - at % TOGETHER
            some = self.items[first : first + TOGETHER]
            self.made |= dict(enumerate(disassembled([*map(self.kernel_of, some)]), first))
        log, sass = self.made[at]
        log.enforce(str(item), "raise")
        assert log.warnings == ()
        return sass
