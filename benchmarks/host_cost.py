"""``python -m benchmarks.host_cost``: what a call costs the host, beside torch, and what it leaks.

Host cost is the time of a call when the GPU keeps up: tensors are small, and every batch of calls
starts on an idle GPU and is shorter than the queue of launches. Implementations take turns, so a
machine that slows down slows all of them; each figure is the median of the batches.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH = 200  # calls; the driver queues 1024 launches
ROUNDS = 60


def main() -> int:
    """Measure, print a table last, and return 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.host_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--calls", type=int, default=100_000, help="calls of the search for leaks")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    from fuser.runtime.driver import device_available

    if not device_available():
        print("no CUDA device: nothing was timed")
        return 2
    calls = implementations()
    found = medians(calls, options.rounds)
    leaks = growth(calls, options.calls)
    rows = [
        ("compiled(x, y, out=o)", "torch.add(x, y, out=o)", 1.0),
        ("compiled(x, y)", "torch.add(x, y)", 1.3),
    ]
    for name, us in found.items():
        print(f"{name:44s} {us:7.2f} us")
    for name, (host, device) in leaks.items():
        print(f"{options.calls} of {name:32s} host {host:+d} KiB, GPU {device:+d} bytes")
    failed = 0
    for ours, peer, limit in rows:
        ratio = found[ours] / found[peer]
        failed += ratio > limit
        print(f"{ours:24s} {found[ours]:6.2f} us, {peer:24s} {found[peer]:6.2f} us: "
              f"{ratio:.3f}, at most {limit} {'MISSED' if ratio > limit else 'ok'}")  # fmt: skip
    for name, (host, device) in leaks.items():
        leaked = host > 1024 or device > 0
        failed += leaked
        print(f"{options.calls} calls of {name}: {'LEAKED' if leaked else 'nothing leaked'}")
    if options.json:
        found_all = {"us": found, "growth": leaks, "failed": failed}
        options.json.write_text(json.dumps(found_all, indent=1) + "\n")
    return 1 if failed else 0


def implementations() -> dict[str, Callable[[], Any]]:
    """Return what is timed, by name; the driver's own cost is there to be subtracted."""
    import torch

    from fuser import DataType, FusionDefinition

    x, y, o = (torch.randn(64, 128, device="cuda") for _ in range(3))
    with FusionDefinition() as fd:
        a, b = (fd.define_tensor([-1, -1], True, DataType.Float) for _ in range(2))
        fd.add_output(a + b)
    compiled, inputs = fd.compile([x, y]), [x, y]
    calls: dict[str, Callable[[], Any]] = {
        "compiled(x, y, out=o)": lambda: compiled(x, y, out=o),
        "torch.add(x, y, out=o)": lambda: torch.add(x, y, out=o),
        "compiled(x, y)": lambda: compiled(x, y),
        "torch.add(x, y)": lambda: torch.add(x, y),
        "fd.execute([x, y], out=o)": lambda: fd.execute(inputs, out=o),
        "fd.execute([x, y])": lambda: fd.execute(inputs),
    }
    for name, call in calls.items():
        for _ in range(3):
            result = call()
        found = result[0] if isinstance(result, list) else result
        torch.testing.assert_close(found, x + y, rtol=0, atol=0, msg=name)
    return calls | parts(fd, x, y, o)


def parts(fd: Any, x: Any, y: Any, o: Any) -> dict[str, Callable[[], Any]]:
    """Return the parts of a call: guards, addresses, the launch, the driver by both routes."""
    import ctypes

    import torch

    from fuser.api.execute import compiled_of
    from fuser.api.known_calls import key_of
    from fuser.runtime.torch_call import never

    known = compiled_of(fd).known.given
    addresses, call = known.latest
    tensors = x, y, o
    stream = call.current(0)
    prepared = call.launch.__self__
    block = prepared._free[-1]
    ((config, function, arguments, _),) = block.calls[stream]
    api = prepared._launch
    library = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    pointers = [ctypes.c_void_p(p) for p in (config.getPtr(), int(function), arguments, 0)]
    calls: dict[str, Callable[[], Any]] = {
        "part: guard of three tensors": lambda: known.guard(x, y, o),
        "part: their signatures in Python": lambda: key_of(tensors, ()),
        "part: three addresses": lambda: (x.data_ptr(), y.data_ptr(), o.data_ptr()),
        "part: current stream": lambda: call.current(0),
        "part: empty_like": lambda: torch.empty_like(x),
        "part: empty": lambda: torch.empty((64, 128), device=x.device),
        "part: empty_strided": lambda: torch.empty_strided((64, 128), (128, 1), device=x.device),
        "part: prepared launch": lambda: call.launch(addresses, stream),
        "part: cuLaunchKernelEx, cuda.bindings": lambda: api(config, function, arguments, 0),
        "part: cuLaunchKernelEx, ctypes": lambda: library(*pointers),
    }
    if known.guard is never:
        print("no guards: this release of torch is not among torch_call.GUARDED_RELEASES")
    return calls


def medians(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median microseconds of a call of each."""
    import torch

    times: dict[str, list[float]] = {name: [] for name in calls}
    gc.disable()
    for _ in range(rounds):
        for name, call in calls.items():
            for _ in range(10):
                call()
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(BATCH):
                call()
            times[name].append((time.perf_counter() - started) / BATCH * 1e6)
            torch.cuda.synchronize()
    gc.enable()
    return {name: round(statistics.median(found), 3) for name, found in times.items()}


def growth(calls: dict[str, Callable[[], Any]], count: int) -> dict[str, tuple[int, int]]:
    """Return by how many KiB of the host and bytes of the GPU memory grew over `count` calls."""
    import torch

    found: dict[str, tuple[int, int]] = {}
    for name in ("compiled(x, y, out=o)", "compiled(x, y)", "fd.execute([x, y])"):
        call = calls[name]
        for _ in range(2000):
            call()
        before = resident_kib(), free_bytes(torch)
        for i in range(count):
            call()
            if i % 500 == 0:
                torch.cuda.synchronize()
        after = resident_kib(), free_bytes(torch)
        found[name] = after[0] - before[0], before[1] - after[1]
    return found


def resident_kib() -> int:
    """Return the resident memory of this process."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def free_bytes(torch: Any) -> int:
    """Return the free memory of the GPU, plus what torch's cache holds unused."""
    torch.cuda.synchronize()
    free, _ = torch.cuda.mem_get_info()
    return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())


if __name__ == "__main__":
    raise SystemExit(main())
