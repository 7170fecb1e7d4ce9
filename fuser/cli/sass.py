"""``python -m fuser sass``: loops, loads and local memory in the machine code of kernels."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from fuser.cli import show
from fuser.cli.arch import add_arch
from fuser.cli.command import Command
from fuser.cli.fusions import fusions_of
from fuser.cli.recorder import Record
from fuser.cli.run import facts_of
from fuser.cli.script import complain
from fuser.codegen.emit import emit
from fuser.core.errors import BackendError, CompileError
from fuser.kir.core import Kernel
from fuser.runtime.cache import CUBINS
from fuser.runtime.sass import find_tool
from fuser.sass import Loop, LoopKind, SassReport, Section, nounroll_pragmas, read_cubin

KINDS: dict[LoopKind, str] = {
    "rolled": "rolled",
    "spin": "waits for an mbarrier",
    "lanes": "lane by lane, of ptxas",
    "registers": "waits for registers, of ptxas",
}


def configure(part: ArgumentParser) -> None:
    """Add the arguments of ``sass``."""
    add_arch(part)
    part.add_argument("-v", "--verbose", action="store_true", help="full tracebacks of errors")
    part.add_argument("file", metavar="FILE.py|FILE.cubin")
    part.set_defaults(arguments=[])


def execute(args: Namespace) -> int:
    """Read a cubin, or compile the kernels of a script and read those."""
    err, out = show.console(stderr=True), show.console()
    if find_tool("nvdisasm") is None:
        complain(err, "sass", "nvdisasm: not found; install nvidia-cuda-nvdisasm")
        return 1
    if Path(args.file).suffix == ".cubin":
        return read_file(Path(args.file), out, err)
    outcome = fusions_of(args, err)
    status = outcome.status
    for record in outcome.recorder.records:
        status = read_record(record, args.arch, out, err) or status
    return status


def read_file(path: Path, out: Console, err: Console) -> int:
    """Print what is in a cubin; return the exit status."""
    try:
        report = read_cubin(path.read_bytes())
    except OSError as error:
        return complain(err, str(path), f"{error.strerror}; a cubin is needed")
    except BackendError as error:
        return complain(err, str(path), str(error))
    if not report.sections:
        return complain(err, str(path), "holds no code; a cubin with a .text section is needed")
    show.heading(out, path.name)
    print_report(out, report)
    return 0


def read_record(record: Record, arch: str, out: Console, err: Console) -> int:
    """Compile a fusion's kernels and print what they became; return the exit status."""
    if record.program is None:
        return 1
    show.heading(out, record.trace.title)
    if record.by_hand:
        show.facts(out, facts_of(record))
    return max((read_kernel(k, arch, out, err) for k in record.program.kernels), default=0)


def read_kernel(kernel: Kernel, arch: str, out: Console, err: Console) -> int:
    """Compile a kernel and print what it became; return the exit status."""
    try:
        cubin = CUBINS.get(emit(kernel), kernel.name, arch, on_spill="ignore")
        report = read_cubin(cubin.image)
    except (BackendError, CompileError) as error:
        complain(err, f"--arch {arch}", str(error))
        return 1
    notes = [f"{arch}, {show.plural(cubin.log.registers, 'register')}"]
    if cubin.ptx is not None:
        marks = nounroll_pragmas(cubin.ptx)
        notes.append(f"{show.plural(marks, 'loop')} marked nounroll in PTX")
    print_report(out, report, ", ".join(notes))
    return 0


def print_report(out: Console, report: SassReport, note: str = "") -> None:
    """Print every section of a cubin."""
    for section in report.sections:
        show.section(out, section.name, note)
        show.facts(out, rows(section))
        if section.loops:
            out.print(table(section.loops))


def rows(section: Section) -> list[tuple[str, str]]:
    """Return what a section does, as ``name  value``."""
    copies = f", {section.async_copies} async copies to shared memory"
    found = [
        ("instructions", str(section.instructions)),
        ("loops", loops_text(section)),
        ("global", _accesses(section.loads, section.stores) + copies),
        ("local", _accesses(section.local_loads, section.local_stores)),
    ]
    if section.hgmma:
        found.append(("products", f"{section.hgmma} of a warpgroup"))
    if section.irreducible:
        edges = ", ".join(f"{a:#06x} to {b:#06x}" for a, b in section.irreducible)
        found.append(("irreducible", f"{edges}: loops with more than one entry, not listed"))
    return found


def loops_text(section: Section) -> str:
    """Print how many loops of each kind there are."""
    made = len(section.of_kind("lanes")) + len(section.of_kind("registers"))
    text = f"{len(section.rolled)}, and {len(section.spins)} that wait for an mbarrier"
    return text + (f"; {made} made by ptxas" if made else "")


def table(loops: tuple[Loop, ...]) -> Table:
    """Return the loops of a section as a table; a loop inside another is indented."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2))
    made.add_column("  loop at")
    for title in ("instructions", "branches back"):
        made.add_column(title, justify="right")
    made.add_column("kind")
    for loop in loops:
        at = f"{'  ' * loop.depth}{loop.header:#06x}"
        made.add_row(at, str(loop.size), str(loop.latches), KINDS[loop.kind])
    return made


def _accesses(loads: int, stores: int) -> str:
    return f"{show.plural(loads, 'load')}, {show.plural(stores, 'store')}"


COMMAND = Command(
    "sass",
    "count loops, loads and local memory in the machine code of a script's kernels",
    execute,
    configure,
    "Arguments after -- are passed to the script.",
)
