"""What the machine code of a kernel does: its loops, its memory accesses, its tensor-core products.

Counts are of instructions in the code, not of instructions executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fuser.runtime.sass import disassemble
from fuser.sass.flow import Cycle, cycles_of, graph_of
from fuser.sass.parse import Code, Instruction, parse

LoopKind: TypeAlias = Literal["rolled", "spin", "lanes", "registers"]

SPIN_LIMIT = 16  # instructions: a wait is shorter, a loop with a wait in it longer

_PRODUCTS = frozenset({"HGMMA", "IGMMA", "QGMMA", "BGMMA"})
_ASYNC = frozenset({"LDGSTS", "UBLKCP", "UTMALDG"})


@dataclass(frozen=True, slots=True)
class Loop:
    """A natural loop.

    Attributes
    ----------
    header
        Address of its first instruction, in bytes from the start of the section.
    depth
        1 for an outermost loop.
    size
        Instructions in it, also in the loops inside.
    latches
        Branches back to the header.
    kind
        ``"spin"`` waits for an mbarrier: innermost, with a ``SYNCS...TRYWAIT``, below `SPIN_LIMIT`.
        Two kinds are made by ptxas and are no loops in PTX: ``"lanes"`` runs an instruction of the
        copy engine for one lane after the other, as its operands are uniform registers
        (``BRA.U.ANY``); ``"registers"`` tries ``setmaxnreg`` until there are enough.
        ``"rolled"`` is every other loop.
    """

    header: int
    depth: int
    size: int
    latches: int
    kind: LoopKind


@dataclass(frozen=True, slots=True)
class Section:
    """One ``.text.*`` section: a kernel, or a device function that was not inlined.

    Attributes
    ----------
    instructions
        Without padding.
    loops
        All natural loops, by address of their headers.
    irreducible
        (from, to): branches back to an instruction that does not dominate them.
    loads, stores
        Of global memory, or through a generic pointer (``LDG``, ``LD``; ``STG``, ``ST``).
    async_copies
        Global to shared memory (``LDGSTS``, ``UBLKCP``, ``UTMALDG``).
    local_loads, local_stores
        Of local memory: spills, and arrays indexed by a variable (``LDL``, ``STL``).
    hgmma
        Warpgroup products; the empty one that closes a group (``gdesc[URZ]``) is not counted.
    """

    name: str
    instructions: int
    loops: tuple[Loop, ...]
    irreducible: tuple[tuple[int, int], ...]
    loads: int
    stores: int
    async_copies: int
    local_loads: int
    local_stores: int
    hgmma: int

    @property
    def rolled(self) -> tuple[Loop, ...]:
        """Loops of the program: neither waits nor made by ptxas."""
        return self.of_kind("rolled")

    @property
    def spins(self) -> tuple[Loop, ...]:
        """Loops that wait for an mbarrier."""
        return self.of_kind("spin")

    def of_kind(self, kind: LoopKind) -> tuple[Loop, ...]:
        """Return the loops of a kind, by address."""
        return tuple(loop for loop in self.loops if loop.kind == kind)


@dataclass(frozen=True, slots=True)
class SassReport:
    """All sections of a cubin; its numbers are sums over them.

    Unoptimised code has its functions in sections of their own, so a kernel alone says too little.
    """

    sections: tuple[Section, ...]

    @property
    def rolled_loops(self) -> int:
        """Loops of the program: neither waits nor made by ptxas."""
        return sum(len(s.rolled) for s in self.sections)

    @property
    def spin_loops(self) -> int:
        """Loops that wait for an mbarrier."""
        return sum(len(s.spins) for s in self.sections)

    @property
    def irreducible_edges(self) -> int:
        """Branches back to no dominator."""
        return sum(len(s.irreducible) for s in self.sections)

    @property
    def loads(self) -> int:
        """Loads of global memory."""
        return sum(s.loads for s in self.sections)

    @property
    def stores(self) -> int:
        """Stores to global memory."""
        return sum(s.stores for s in self.sections)

    @property
    def local_loads(self) -> int:
        """Loads of local memory."""
        return sum(s.local_loads for s in self.sections)

    @property
    def local_stores(self) -> int:
        """Stores to local memory."""
        return sum(s.local_stores for s in self.sections)

    @property
    def hgmma(self) -> int:
        """Warpgroup products."""
        return sum(s.hgmma for s in self.sections)


def read_cubin(image: bytes) -> SassReport:
    """Disassemble a cubin and report on it; raise `BackendError` without a working nvdisasm."""
    return read_sass(disassemble(image))


def read_sass(text: str) -> SassReport:
    """Report on a disassembly, the text that ``nvdisasm -c`` prints."""
    return SassReport(tuple(section_of(code) for code in parse(text)))


def section_of(code: Code) -> Section:
    """Report on one section."""
    cycles, irreducible = cycles_of(graph_of(code))
    by_address = {i.address: i for i in code.instructions}

    def count(wanted: Callable[[Instruction], bool]) -> int:
        return sum(map(wanted, code.instructions))

    return Section(
        code.name,
        count(lambda i: i.name != "NOP"),
        tuple(_loop(cycle, cycles, by_address) for cycle in cycles),
        irreducible,
        loads=count(lambda i: i.name in ("LDG", "LD")),
        stores=count(lambda i: i.name in ("STG", "ST")),
        async_copies=count(_copies_in),
        local_loads=count(lambda i: i.name == "LDL"),
        local_stores=count(lambda i: i.name == "STL"),
        hgmma=count(lambda i: i.name in _PRODUCTS and "gdesc[URZ]" not in i.operands),
    )


def _copies_in(instruction: Instruction) -> bool:
    """Whether it copies to shared memory; ``UBLKCP.G.S`` goes the other way."""
    return instruction.name in _ASYNC and ".G.S" not in instruction.opcode


def _loop(cycle: Cycle, cycles: Iterable[Cycle], code: dict[int, Instruction]) -> Loop:
    depth = sum(cycle.header in other.body for other in cycles)
    innermost = not any(o.header in cycle.body for o in cycles if o is not cycle)
    kind = _innermost_kind(cycle, code) if innermost else "rolled"
    return Loop(cycle.header, depth, len(cycle.body), len(cycle.latches), kind)


def _innermost_kind(cycle: Cycle, code: dict[int, Instruction]) -> LoopKind:
    body = [code[address] for address in cycle.body]
    if all(code[address].opcode == "BRA.U.ANY" for address in cycle.latches):
        return "lanes"
    if len(body) < SPIN_LIMIT:
        if any(i.name == "SYNCS" and "TRYWAIT" in i.opcode for i in body):
            return "spin"
        if any(i.name == "USETMAXREG" for i in body):
            return "registers"
    return "rolled"
