"""``PYTHONPATH=.:tests python tests/marks.py [pytest arguments]``: loops of all kernels of tests.

Runs pytest in this process, keeps each kernel that a fusion was compiled to, and compiles them: the
loops of the machine code are those that PTX asks to be left rolled. Exits with 1 if not.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from sass_loops import count_loops

from fuser.api.listen import listening
from fuser.codegen.emit import emit
from fuser.core.errors import FuserError
from fuser.kir.program import Program


@dataclass
class Collector:
    """Keeps the CUDA of every kernel, and the first test that built it."""

    test: str = ""
    kernels: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Note which test runs."""
        self.test = item.nodeid

    def building(self, *_: Any) -> Any:
        """See `fuser.api.listen.Listener`."""
        return lambda stage, ir: None

    def built(self, fd: Any, program: Program, *_: Any) -> None:
        """Keep the kernels of a program."""
        for kernel in program.kernels:
            self.kernels.setdefault(emit(kernel), (kernel.name, self.test))

    def called(self, *_: Any) -> None:
        """See `fuser.api.listen.Listener`."""

    def ran(self, *_: Any) -> None:
        """See `fuser.api.listen.Listener`."""


def main() -> int:
    """Run tests, compile, compare; return the exit status."""
    parser = argparse.ArgumentParser(prog="python tests/marks.py", description=__doc__)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--every", type=int, default=1, help="only every n-th kernel")
    options, arguments = parser.parse_known_args()
    found = Collector()
    quiet = ("-q", "--no-header", "-p", "no:xdist", "-o", "addopts=--import-mode=importlib")
    with listening(found):
        pytest.main([*arguments, *quiet], [found])
    chosen = list(found.kernels.items())[:: options.every]
    print(f"{len(found.kernels)} kernels, of which {len(chosen)} are compiled for {options.arch}")
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # NVRTC and nvdisasm run without the GIL
        counts = Counter(pool.map(lambda item: verdict(item[0], *item[1], options.arch), chosen))
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    return int(counts["DIFFERS"] > 0)


def verdict(source: str, name: str, test: str, arch: str) -> str:
    """Compare one kernel; print it where loops and marks differ."""
    try:
        report, marks = count_loops(source, name, arch)
    except FuserError as error:
        print(f"not compiled: {test}: {str(error).splitlines()[0]}")
        return "not compiled"
    loops = report.rolled_loops + report.spin_loops
    if loops == marks:
        return "ok"
    print(f"DIFFERS {loops} loops, {marks} marks: {test}", flush=True)
    return "DIFFERS"


if __name__ == "__main__":
    raise SystemExit(main())
