"""``python -m benchmarks.start``: how long a process takes to its first result.

Times ``import fuser`` and, on a GPU, the first result of a process with an empty cache and of those
after it, from when ``fuser`` and torch are imported and a tensor is on the GPU. Fresh processes
all, the best of several: a target is missed, and the exit status 1, when none of them met it.
Python keeps bytecode in a folder of the run, which one process fills before any is timed: an
installed package has it, and in a checkout the environment may forbid it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUNS = 7
IMPORT_SECONDS, RESULT_SECONDS = 0.25, 0.4

IMPORT = """
import time
started = time.perf_counter()
import fuser
print(time.perf_counter() - started)
"""

FIRST_RESULT = """
import time
import torch
import fuser
from fuser import DataType, FusionDefinition
{more}
x = torch.ones(64, 128, device="cuda")
torch.cuda.synchronize()
started = time.perf_counter()
with FusionDefinition() as fd:
    a, b = (fd.define_tensor([-1, -1], True, DataType.Float) for _ in range(2))
    fd.add_output(a + b)
result = fd.execute([x, x])[0]
torch.cuda.synchronize()
print(time.perf_counter() - started)
assert (result == 2).all().item()
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each, with the target where there is one."""
    argparse.ArgumentParser("python -m benchmarks.start", description=__doc__).parse_args(argv)
    from fuser.runtime.driver import device_available

    with tempfile.TemporaryDirectory(prefix="fuser-start-") as folder:
        places = {
            "PYTHONPYCACHEPREFIX": f"{folder}/bytecode",
            "PYTHONDONTWRITEBYTECODE": "",
            "FUSER_CACHE_DIR": f"{folder}/cache",
        }
        run(IMPORT, places)
        missed = tell("import fuser", best(IMPORT, places), IMPORT_SECONDS)
        if not device_available():
            print("no CUDA device: no first result was timed")
            return int(missed)
        code = FIRST_RESULT.format(more="")
        run(code, places)
        without = places | {"FUSER_CACHE_DIR": f"{folder}/other"}
        tell("first result, empty cache", run(code, without))
        missed |= tell("first result, warm cache", best(code, places), RESULT_SECONDS)
    return int(missed)


def best(code: str, environment: dict[str, str]) -> float:
    """Return the shortest of several runs in seconds."""
    return min(run(code, environment) for _ in range(RUNS))


def run(code: str, environment: dict[str, str]) -> float:
    """Run `code` in a process of its own and return the number that it prints last."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, cwd=ROOT, check=True,
        text=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    return float(done.stdout.split()[-1])


def tell(what: str, seconds: float, target: float | None = None) -> bool:
    """Print a figure; return whether it misses its target."""
    missed = target is not None and seconds > target
    verdict = "" if target is None else f", at most {target * 1e3:.0f}: {'MISSED' * missed or 'ok'}"
    print(f"{what:52s} {seconds * 1e3:6.0f} ms{verdict}", flush=True)
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
