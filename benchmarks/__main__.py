"""``python -m benchmarks``: the table of generated kernels, ceilings and peers."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def main() -> int:
    """Run the benchmarks named on the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of workload names; all when none is given")
    parser.add_argument("--peers", default="torch,compile", help="comma-separated, or empty")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--commit", help="what to record where there is no git checkout")
    parser.add_argument("--repetitions", type=int, default=30)
    options = parser.parse_args()
    from fuser.runtime.driver import device_available

    if not device_available():
        print("no CUDA device: nothing was timed; the runner needs a Hopper GPU")
        return 2
    peers = [p for p in options.peers.split(",") if p]
    rows, ceilings = run(options.names, peers, options.repetitions)
    print_table(rows)
    for name, gbps in ceilings.items():
        print(f"ceiling {name:20s} {gbps:8.1f} GB/s")
    if options.json:
        found = {"machine": machine(options.commit), "ceilings": ceilings, "rows": rows}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def machine(commit: str | None) -> dict[str, str]:
    """Return what a result depends on: commit, GPU, driver, versions, time."""
    import torch

    from fuser.runtime.driver import driver_version
    from fuser.runtime.nvrtc import nvrtc_version

    if commit is None:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip()
    return {
        "commit": commit or "unknown",
        "gpu": torch.cuda.get_device_name(),
        "driver": ".".join(map(str, driver_version())),
        "nvrtc": ".".join(map(str, nvrtc_version())),
        "torch": torch.__version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def run(
    names: list[str], peers: list[str], repetitions: int
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Check and time every workload.

    Returns
    -------
    tuple
        One row per (workload, implementation), and the GB/s of every ceiling: the mean of a
        measurement before and one after the workloads.
    """
    from benchmarks.ceilings import CEILINGS
    from benchmarks.timing import Timer
    from benchmarks.workloads import WORKLOADS, moved_bytes

    timer = Timer(repetitions)
    before = {name: measure(timer) for name, measure in CEILINGS.items()}
    rows: list[dict[str, Any]] = []
    for workload in WORKLOADS:
        if names and not any(name in workload.name for name in names):
            continue
        inputs = workload.inputs()
        for name, call in implementations(workload, inputs, peers):
            outputs = call()
            error = check(workload, inputs, outputs)
            ms = timer.milliseconds(call)
            gbps = moved_bytes(inputs, as_tuple(outputs)) / ms / 1e6
            rows.append(
                {"workload": workload.name, "implementation": name, "us": round(ms * 1e3, 2),
                 "GBps": round(gbps, 1), "error": error, "ceiling": workload.ceiling}
            )  # fmt: skip
            del outputs
    after = {name: measure(timer) for name, measure in CEILINGS.items()}
    ceilings = {name: round(statistics.mean((before[name], after[name])), 1) for name in CEILINGS}
    for row in rows:
        ceiling = ceilings[row["ceiling"]]
        row["ceiling_GBps"] = ceiling
        row["of_ceiling"] = round(row["GBps"] / ceiling, 4)
    return rows, ceilings


def as_tuple(outputs: Any) -> tuple[Any, ...]:
    """Return outputs as a tuple."""
    return tuple(outputs) if isinstance(outputs, list | tuple) else (outputs,)


def implementations(workload: Any, inputs: Any, peers: list[str]) -> list[tuple[str, Any]]:
    """Return ``(name, callable)`` of ours and of every peer asked for."""
    import torch

    ours = workload.build()
    found: list[tuple[str, Any]] = [("fuser", lambda: ours(list(inputs)))]
    if "torch" in peers:
        found.append(("torch eager", lambda: workload.torch(*inputs)))
    if "compile" in peers:
        torch._dynamo.reset()
        compiled = torch.compile(workload.torch, dynamic=False)
        found.append(("torch.compile", lambda: compiled(*inputs)))
    return found


def check(workload: Any, inputs: Any, outputs: Any) -> float:
    """Return the relative error against float64; raise if it is not small."""
    import torch

    worst = 0.0
    whole = any(out.dim() == 0 for out in as_tuple(outputs))
    # float64 copies of all rows would not leave room; a reduction to a scalar needs them
    rows = slice(None) if whole else slice(0, 512)
    reference = workload.reference(
        *(t[rows].double() if t.dim() > 1 else t.double() for t in inputs)
    )
    for out, want in zip(as_tuple(outputs), as_tuple(reference), strict=True):
        got = out[tuple(slice(0, n) for n in want.shape)].double()
        error = float((got - want).norm() / want.norm())
        limit = 1e-2 if out.dtype == torch.bfloat16 else 1e-5
        if not error < limit:
            raise RuntimeError(f"{workload.name}: relative error {error}; below {limit} was needed")
        worst = max(worst, error)
    return worst


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print the rows, with the ratio to the ceiling and to the best peer."""
    print(f"{'workload':28s} {'implementation':14s} {'us':>9s} {'GB/s':>8s} {'ceiling':>8s} "
          f"{'of it':>7s} {'vs peer':>8s}")  # fmt: skip
    for row in rows:
        peers = [r["us"] for r in rows if r["workload"] == row["workload"]
                 and r["implementation"] != "fuser"]  # fmt: skip
        ratio = (
            f"{min(peers) / row['us']:8.3f}" if peers and row["implementation"] == "fuser" else ""
        )
        gbps = f"{row['GBps']:8.1f} {row['ceiling_GBps']:8.1f} {row['of_ceiling']:7.4f}"
        name = f"{row['workload']:28s} {row['implementation']:14s}"
        print(f"{name} {row['us']:9.2f} {gbps} {ratio:>8s}")


if __name__ == "__main__":
    raise SystemExit(main())
