"""One cell of every family under compute-sanitizer: memcheck, racecheck and synccheck.

``PYTHONPATH=.:tests python tests/gpu/sanitize.py [compute-sanitizer]`` on a machine with a GPU;
prints a table and ends with status 1 if anything was found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rings import matrix
from rings.cells import Cell

from fuser import DataType

TOOLS = ("memcheck", "racecheck", "synccheck")
SECONDS = 300
KINDS = ("parity-mbarrier", "parity-barrier", "ws", "ws-regs", "groups", "pingpong")
SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: (.*)")


def cells() -> list[Cell]:
    """Return a cell of the matrix of every family and way to load, of each kind that it has.

    None is left out for what a tool says of it; docs/circular_buffer.md tells what is known.
    """
    found: dict[tuple[object, ...], Cell] = {}
    for cell in sorted(matrix.whole(), key=_rank):
        if cell.type in KINDS and cell.size is None:
            found.setdefault((cell.family, cell.variant, cell.loads, cell.type), cell)
    return list(found.values())


def _rank(cell: Cell) -> tuple[bool, ...]:
    """Order cells: stages that run ahead, a round and a trip, whole tiles and float come first."""
    return (
        cell.stages not in (3, 4), cell.prefetch != cell.stages - 1, cell.trips != "S+1",
        cell.trips != "3S+1",
        cell.edge != "whole", cell.dtype is not DataType.Float,
    )  # fmt: skip


def run(sanitizer: str, tool: str, cell: Cell) -> str:
    """Return "clean", or what the tool or the cell said."""
    command = [sanitizer, f"--tool={tool}", "--error-exitcode=9", sys.executable, "-m",
               "rings.on_gpu"]  # fmt: skip
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "tests")))}
    try:
        done = subprocess.run(
            command, input=str(cell), env=env, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"hung: more than {SECONDS} s"
    text = done.stdout + done.stderr
    summary = SUMMARY.search(text)
    if summary is None:
        return f"no summary: {' '.join(text.split())[-200:]}"
    if done.returncode or not summary[2].startswith("0 ") or f"ok {cell}" not in text:
        said = re.findall(r"^(?:bad|lost) .*|^=+ (?:Invalid|Error|Race|Barrier).*", text, re.M)
        return f"{summary[2]}; {' '.join(said)[:300]}"
    return "clean"


def main() -> int:
    """Print the table."""
    sanitizer = sys.argv[1] if len(sys.argv) > 1 else shutil.which("compute-sanitizer")
    if sanitizer is None:
        raise SystemExit("compute-sanitizer: not on PATH; needed its path as argument")
    found = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [{t: pool.submit(run, sanitizer, t, cell) for t in TOOLS} for cell in cells()]
        for cell, pending in zip(cells(), runs, strict=True):
            results = {tool: future.result() for tool, future in pending.items()}
            found += sum(text != "clean" for text in results.values())
            said = "  ".join(f"{tool} {text}" for tool, text in results.items())
            print(f"{cell!s:75}", said, flush=True)
    print(f"{len(cells())} cells, {len(TOOLS)} tools, {found} findings")
    return int(found > 0)


if __name__ == "__main__":
    raise SystemExit(main())
