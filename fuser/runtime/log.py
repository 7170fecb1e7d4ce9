"""What NVRTC and ptxas report about a kernel, and what of it must not pass unseen."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fuser.core.errors import CompileError

OnSpill: TypeAlias = Literal["warn", "raise", "ignore"]


class CompileWarning(UserWarning):
    """A kernel compiled, but its log shows that it will be slow."""


@dataclass(frozen=True, slots=True)
class CompileLog:
    """Resources of one kernel, read from ``ptxas --verbose``.

    Attributes
    ----------
    registers
        Per thread, of the entry function.
    shared_bytes
        Static shared memory per block.
    spill_store_bytes, spill_load_bytes
        Register spills per thread, summed over the entry and the functions it calls.
    stack_bytes
        Local memory per thread: spills and arrays that were not promoted to registers.
    barriers
        Named barriers per block.
    notes
        ptxas advice (``C75xx``: dropped ``setmaxnreg``, serialised ``wgmma``), one line each.
    warnings
        Warnings of the front end and of ptxas, one line each.
    text
        The log as it came.
    """

    registers: int = 0
    shared_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    stack_bytes: int = 0
    barriers: int = 0
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    text: str = ""

    def findings(self) -> tuple[str, ...]:
        """Return what makes the kernel slow, one sentence each, most costly first."""
        found = list(self.notes)
        if self.spill_store_bytes or self.spill_load_bytes:
            found.append(
                f"{self.spill_store_bytes} bytes spill stores, "
                f"{self.spill_load_bytes} bytes spill loads per thread"
            )
        elif self.stack_bytes:
            found.append(f"{self.stack_bytes} bytes of local memory per thread")
        return tuple(found)

    def _cure(self) -> str:
        """Return what the findings call for."""
        in_registers = not (self.spill_store_bytes or self.spill_load_bytes or self.stack_bytes)
        if in_registers and all("wgmma" in note for note in self.notes):
            return "products that follow each other without a loop: unroll() the steps of a trip"
        return "a kernel that stays in registers: smaller tiles, fewer stages or less unrolling"

    def enforce(self, kernel: str, on_spill: OnSpill = "warn") -> None:
        """Warn about or reject spills, local memory and ptxas notes.

        Raises
        ------
        CompileError
            If there is a finding and `on_spill` is ``"raise"``.
        """
        findings = self.findings()
        if not findings or on_spill == "ignore":
            return
        message = (
            f"kernel {kernel}: {'; '.join(findings)} ({self.registers} registers); needs "
            f"{self._cure()}"
        )
        if on_spill == "raise":
            raise CompileError(message)
        warnings.warn(message, CompileWarning, stacklevel=3)


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_USED = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SMEM = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_CUMULATIVE_STACK = re.compile(r"(\d+) bytes cumulative stack size")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_NOTE = re.compile(r"\(C7\d{3}\)")
_WARNING = re.compile(r"\bwarning\b(?: #\d+-D)?\s*:")


def parse_log(text: str, kernel: str) -> CompileLog:
    """Read the lines of `text` about `kernel`.

    Lines about other entry functions of the same source are left out; if `kernel` is not among
    the entry functions (a mangled name), all lines count.
    """
    lines = tuple(_lines_about(text, kernel))
    frames = [m for m in map(_FRAME.search, lines) if m]
    frame_bytes = max((int(m[1]) for m in frames), default=0)
    return CompileLog(
        registers=_largest(_USED, lines),
        shared_bytes=_largest(_SMEM, lines),
        spill_store_bytes=sum(int(m[2]) for m in frames),
        spill_load_bytes=sum(int(m[3]) for m in frames),
        stack_bytes=max(frame_bytes, _largest(_CUMULATIVE_STACK, lines)),
        barriers=_largest(_BARRIERS, lines),
        notes=tuple(_tail(line) for line in text.splitlines() if _NOTE.search(line)),
        warnings=tuple(line.strip() for line in text.splitlines() if _WARNING.search(line)),
        text=text,
    )


def _lines_about(text: str, kernel: str) -> Iterator[str]:
    everything = kernel not in _ENTRY.findall(text)
    wanted = everything
    for line in text.splitlines():
        if match := _ENTRY.search(line):
            wanted = everything or match[1] == kernel
        if wanted:
            yield line


def _largest(pattern: re.Pattern[str], lines: tuple[str, ...]) -> int:
    return max((int(m[1]) for m in map(pattern.search, lines) if m), default=0)


def _tail(line: str) -> str:
    """Return the line without ptxas' ``info :`` prefix."""
    return line.partition(": ")[2].strip() or line.strip()


_SOURCE_ERROR = re.compile(r"\((\d+)\): (?:catastrophic )?error")
_PTX_ERROR = re.compile(r"ptxas [^,\n]+, line (\d+); error")


_ERROR = re.compile(r"\berror\b\s*:")
_TOO_OLD = re.compile(r"'(.+)' requires \.target (sm_\d+) or higher")
_ABSENT = re.compile(r"Instruction '(.+)' not supported on \.target")
_NO_CLUSTERS = re.compile(r"error: (__cluster_dims__) is not supported for this GPU arch")
_FOLLOWS = "'mbarrier.arrive with count argument'"
"""Ends the advice that ptxas adds where it has said that the architecture is too old."""


def compile_error(
    kernel: str, log: str, source: str, ptx: str | None = None, arch: str = ""
) -> CompileError:
    """Build the error of a failed compilation: the log and the source around its first error.

    If all that is wrong is the architecture, one line says what of the kernel it does not have.
    """
    if missing := _missing_features(log):
        names, needed = missing
        return CompileError(
            f"kernel {kernel}: uses {', '.join(names)}, which {arch or 'the architecture'} does "
            f"not have; needed {needed}"
        )
    excerpt = ""
    if match := _SOURCE_ERROR.search(log):
        excerpt = numbered_excerpt(source, int(match[1]))
    elif ptx and (match := _PTX_ERROR.search(log)):
        excerpt = numbered_excerpt(ptx, int(match[1]))
    text = f"kernel {kernel}: NVRTC rejected its CUDA source; needed source that compiles"
    return CompileError("\n".join(part for part in (text, log.strip(), excerpt) if part))


def _missing_features(log: str) -> tuple[tuple[str, ...], str] | None:
    """Return what an architecture does not have and which has it, if no line has another error."""
    lines = [line for line in log.splitlines() if _ERROR.search(line)]
    old = [m for m in map(_TOO_OLD.search, lines) if m]
    absent = [m for m in map(_ABSENT.search, lines) if m]
    clusters = [m for m in map(_NO_CLUSTERS.search, lines) if m]
    follows = sum(line.endswith(_FOLLOWS) for line in lines)
    found = [*old, *absent, *clusters]
    if not found or len(found) + follows < len(lines):
        return None
    names = dict.fromkeys(m[1].split()[0] for m in found)
    instructions = [name for name in names if name[0].isalpha() or name[0] == "_"]
    if absent:  # such as setmaxnreg, of sm_90a and not of sm_90
        needed = "an architecture that has it, such as sm_90a"
    else:
        needed = f"{max((m[2] for m in old), default='sm_90', key=_number)} or newer"
    return tuple(dict.fromkeys(map(_feature, instructions or names))), needed


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_"))


def _feature(name: str) -> str:
    """Return an instruction without its modifiers, or what everybody calls it."""
    if name == "__cluster_dims__":
        return "clusters"
    return "TMA" if name.startswith("cp.async.bulk") else ".".join(name.split(".")[:2])


def numbered_excerpt(source: str, line: int, context: int = 4) -> str:
    """Return lines `line` - `context` to `line` + `context`, numbered, `line` marked by ``>``."""
    first = max(1, line - context)
    lines = source.splitlines()[first - 1 : line + context]
    return "\n".join(
        f"{'>' if number == line else ' '}{number:5d} | {text}"
        for number, text in enumerate(lines, first)
    )
