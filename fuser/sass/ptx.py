"""What PTX says of its loops."""

from __future__ import annotations

import re

_NOUNROLL = re.compile(r'^[^/\n]*\.pragma\s+"nounroll"\s*;', re.MULTILINE)

_LABEL = re.compile(r"\s*(\$\w+):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$\w+)\s*;")


def nounroll_pragmas(ptx: str) -> int:
    """Return how many loops a module asks to be left rolled: its ``.pragma "nounroll"``.

    NVRTC writes one at the head of a loop for ``#pragma unroll 1``, none when it compiles for the
    debugger. A copy of such a loop carries its own. (PTX ISA, Pragma Strings.)
    """
    return len(_NOUNROLL.findall(ptx))


def marked_loops(ptx: str) -> int:
    """Return how many loops of a module begin where a ``.pragma "nounroll"`` stands.

    Two loops may begin at one label: a wait that is the first thing in a loop, and that loop. They
    have one mark, and a branch back each.
    """
    label, loops = "", dict[str, int]()
    for line in ptx.splitlines():
        if found := _LABEL.match(line):
            label = found[1]
        elif _NOUNROLL.match(line):
            loops[label] = 0
        elif (found := _BRANCH.search(line)) and found[1] in loops:
            loops[found[1]] += 1
    return sum(max(1, times) for times in loops.values())
