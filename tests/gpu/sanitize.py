"""One cell of every family under compute-sanitizer: memcheck, racecheck and synccheck.

``PYTHONPATH=.:tests python tests/gpu/sanitize.py [--few] [compute-sanitizer]`` on a machine with a
GPU; prints a table and ends with status 1 if anything was found. ``--few`` takes the first way to
load of each family and kind of ring.

racecheck does not follow a release by a warp (all lanes read, ``__syncwarp``, one lane arrives at
the mbarrier): it sees the arrival of one lane only. So a cell that it reports is run twice more,
with an arrival by every reader in place of the warp's, and so but without the wait for the readers,
which is a race. It counts as clean if the first is clean and the second is reported or hangs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rings import matrix
from rings.cells import Cell

from fuser import DataType

TOOLS = ("memcheck", "racecheck", "synccheck")
SECONDS = 300
CONTROL_SECONDS = 45
"""For a kernel without its wait, which may miss a phase and then hangs."""
KINDS = ("parity-mbarrier", "parity-barrier", "ws", "ws-regs", "groups", "pingpong")
BY_THREAD = "clean if every reader arrives, reported without the wait"
HANGS = "clean if every reader arrives, hangs without the wait"
SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: (.*)")


def cells(few: bool = False) -> list[Cell]:
    """Return a cell of the matrix of every family and way to load, of each kind that it has.

    None is left out for what a tool says of it; docs/circular_buffer.md tells what is known.
    """
    found: dict[tuple[object, ...], Cell] = {}
    for cell in sorted(matrix.whole(), key=_rank):
        if cell.type in KINDS and cell.size is None:
            way = () if few else (cell.variant, cell.loads)
            found.setdefault((cell.family, cell.type, *way), cell)
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
    said = once(sanitizer, tool, cell)
    if tool != "racecheck" or said == "clean":
        return said
    changed = once(sanitizer, tool, cell, "by_thread")
    control = once(sanitizer, tool, cell, "by_thread", "no_wait", seconds=CONTROL_SECONDS)
    if changed == "clean" and "hazard" in control:
        return BY_THREAD
    if changed == "clean" and "hung" in control:
        return HANGS
    return f"{said}; every reader arrives: {changed}; no wait: {control}"


def once(sanitizer: str, tool: str, cell: Cell, *changes: str, seconds: int = SECONDS) -> str:
    """Return "clean", or what the tool or the cell said, of the kernel with some changes."""
    command = [sanitizer, f"--tool={tool}", "--error-exitcode=9", sys.executable, "-m",
               "rings.on_gpu", *changes]  # fmt: skip
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "tests")))}
    try:
        done = subprocess.run(
            command, input=str(cell), env=env, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return f"hung: more than {seconds} s"
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
    few = "--few" in sys.argv
    chosen = cells(few)
    named = [argument for argument in sys.argv[1:] if argument != "--few"]
    sanitizer = named[0] if named else shutil.which("compute-sanitizer")
    if sanitizer is None:
        raise SystemExit("compute-sanitizer: not on PATH; needed its path as argument")
    found, explained, clean = 0, Counter[str](), Counter[str]()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [{t: pool.submit(run, sanitizer, t, cell) for t in TOOLS} for cell in chosen]
        for cell, pending in zip(chosen, runs, strict=True):
            results = {tool: future.result() for tool, future in pending.items()}
            found += sum(text not in ("clean", BY_THREAD, HANGS) for text in results.values())
            explained.update(text for text in results.values() if text in (BY_THREAD, HANGS))
            clean[cell.family] += all(text == "clean" for text in results.values())
            said = "  ".join(f"{tool} {text}" for tool, text in results.items())
            print(f"{cell!s:75}", said, flush=True)
    print(f"{len(chosen)} cells, {len(TOOLS)} tools, {found} findings")
    for text, count in explained.items():
        print(f"racecheck: {count} {text}")
    for family, count in clean.items():
        total = sum(cell.family == family for cell in chosen)
        print(f"{family:24} {count:3} of {total:3} cells clean as they are under all tools")
    return int(found > 0)


if __name__ == "__main__":
    raise SystemExit(main())
