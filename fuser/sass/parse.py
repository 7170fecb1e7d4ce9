"""``nvdisasm -c`` text as instructions, one list per code section."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fuser.core.errors import BackendError

_SECTION = re.compile(r"\s*\.section\s+([^,\s]+)")
_LABEL = re.compile(r"([.$\w]+):\s*$")
_FUNCTION = re.compile(r"\s*\.type\s+([^,\s]+),@function")
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]+)\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z]\S*?)(?:\s+(.*?))?\s*;")
_TARGET = re.compile(r"`\(([^)]+)\)")
_TARGETS = re.compile(r'\(\*"BRANCH_TARGETS ([^"]+)"\*\)')


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction.

    Attributes
    ----------
    address
        Bytes from the start of its section.
    guard
        ``@P0``, ``@!UP1``; empty when it always runs.
    opcode
        With its modifiers: ``LDG.E.128``.
    operands
        The rest, as printed.
    """

    address: int
    guard: str
    opcode: str
    operands: str

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.split(".", 1)[0]

    @property
    def labels(self) -> tuple[str, ...]:
        """What it names as targets: of a branch, a call, or an indirect branch's table."""
        table = _TARGETS.search(self.operands)
        return tuple(table[1].split(",") if table else _TARGET.findall(self.operands))

    @property
    def conditional(self) -> bool:
        """Whether it may not happen: by its guard, or by a predicate before its target.

        ``BRA.U UP0, `(.L)`` and ``BRA.DIV ~URZ, `(.L)`` have no guard and fall through too.
        """
        return bool(self.guard) or "," in _TARGETS.sub("", self.operands)


@dataclass(frozen=True, slots=True)
class Code:
    """The instructions of one ``.text.*`` section.

    Attributes
    ----------
    name
        Kernel or device function, as in the name of the section.
    labels
        Addresses by name.
    functions
        Symbols of functions inside; a function that was not inlined may share its caller's section.
    """

    name: str
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    functions: tuple[str, ...]


def parse(text: str) -> tuple[Code, ...]:
    """Return the code sections of a disassembly, in its order.

    Raises
    ------
    BackendError
        If a line that begins like an instruction cannot be read.
    """
    sections: list[_Section] = []
    inside = False
    for line in text.splitlines():
        if found := _SECTION.match(line):
            inside = found[1].startswith(".text.")
            if inside:
                sections.append(_Section(found[1].removeprefix(".text.")))
        elif inside:
            sections[-1].read(line)
    return tuple(section.code() for section in sections)


class _Section:
    """A section while its lines are read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.waiting: list[str] = []  # labels before the next instruction
        self.functions: list[str] = []

    def read(self, line: str) -> None:
        if found := _INSTRUCTION.match(line):
            address = int(found[1], 16)
            made = Instruction(address, found[2] or "", found[3], found[4] or "")
            self.instructions.append(made)
            self.labels |= dict.fromkeys(self.waiting, address)
            self.waiting.clear()
        elif found := _LABEL.match(line):
            self.waiting.append(found[1])
        elif found := _FUNCTION.match(line):
            self.functions.append(found[1])
        elif re.match(r"\s*/\*[0-9a-f]+\*/", line):
            what = f"line {line.strip()!r} is no instruction"
            raise BackendError(
                f"nvdisasm: section {self.name}: {what}; needed `/*address*/ OP ...;`"
            )

    def code(self) -> Code:
        return Code(self.name, tuple(self.instructions), self.labels, tuple(self.functions))
