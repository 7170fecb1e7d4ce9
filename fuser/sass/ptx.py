"""What PTX says of its loops."""

from __future__ import annotations

import re

_NOUNROLL = re.compile(r'^[^/\n]*\.pragma\s+"nounroll"\s*;', re.MULTILINE)


def nounroll_pragmas(ptx: str) -> int:
    """Return how many loops a module asks to be left rolled: its ``.pragma "nounroll"``.

    NVRTC writes one at the head of a loop for ``#pragma unroll 1``, none when it compiles for the
    debugger. A copy of such a loop carries its own. (PTX ISA, Pragma Strings.)
    """
    return len(_NOUNROLL.findall(ptx))
