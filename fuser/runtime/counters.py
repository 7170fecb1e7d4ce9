"""Counters that kernels leave at zero, kept per stream so that no launch has to zero them.

The last block of a grid reduction resets its counter, so memory that was zero before a launch is
zero after it. Launches on one stream follow one another and may share it.
"""

from __future__ import annotations

import threading

from fuser.runtime.arrays import ArrayKind
from fuser.runtime.driver import check, driver
from fuser.runtime.memory import DeviceBuffer


class Counters:
    """Zeroed memory by (stream, buffer name), of one program on one GPU."""

    def __init__(self, device_id: int) -> None:
        self.device_id = device_id
        self._kept: dict[tuple[int, str], tuple[DeviceBuffer, int]] = {}
        self._lock = threading.Lock()

    def address(self, name: str, nbytes: int, kind: ArrayKind, stream: int) -> int | None:
        """Return memory that is zero when the stream gets there; None: zero some yourself.

        Only for torch, whose streams live as long as the process: the handle of a destroyed stream
        can come back while its work still runs. Nor while a graph is captured, which may be
        replayed beside other work.
        """
        if kind != "torch" or _is_capturing(stream):
            return None
        with self._lock:
            found = self._kept.get((stream, name))
            if found is None or found[1] < nbytes:
                buffer = DeviceBuffer(nbytes, self.device_id)
                answer = driver().cuMemsetD8Async(buffer.pointer, 0, max(1, nbytes), stream)
                check(answer, f"counters {name}")
                found = self._kept[stream, name] = buffer, nbytes
            return found[0].pointer

    def forget(self) -> None:
        """Drop all counters: a launch failed, and some may not be zero."""
        with self._lock:
            self._kept.clear()


def _is_capturing(stream: int) -> bool:
    api = driver()
    status = check(api.cuStreamIsCapturing(stream), "stream")
    return bool(status != api.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)
