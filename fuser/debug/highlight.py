"""Tokens of a line of any stage, for colours in a terminal and classes in a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal, TypeAlias

from fuser.core.dtypes import DataType
from fuser.debug.stages import Stage

Kind: TypeAlias = Literal["comment", "keyword", "type", "number", "call", "register", "name", ""]

_KEYWORDS: dict[Stage, str] = {
    "fusion": "return constraint",
    "schedule": "schedule root merge split by swizzle loop inlined in of at computed memory loaded",
    "nest": "nest for in allocate init combine finish assign sync",
    "kir": r"kernel grid block param shared orelse [A-Z]\w+(?=[\s:]|$)",
    "cuda": (
        "const if else for return extern alignas struct template typedef static class bool "
        "__global__ __shared__ __restrict__ __launch_bounds__ __device__ __forceinline__ asm"
    ),
    "ptx": r"\.\w+",
    "sass": r"\.\w+ [A-Z][A-Z0-9]+(?:\.[A-Z0-9_.]+)? @!?U?P\w+",
}
_TYPES = " ".join(
    [*(d.short for d in DataType), "idx", "int", "float", "double", "unsigned", "void", "char",
     "short", "long", "uint2", "uint4"]
)  # fmt: skip
_REGISTER: dict[Stage, str] = {"ptx": r"%\w+(?:\.\w+)?", "sass": r"\bU?[RP](?:\d+|Z|T)\b"}
_COMMENT: dict[Stage, str] = {
    "cuda": r"//.*|/\*.*?\*/|^\s*\#.*",
    "ptx": r"//.*",
    "sass": r"//.*|/\*.*?\*/",
}


@cache
def _pattern(stage: Stage) -> re.Pattern[str]:
    def words(text: str) -> str:
        return "|".join(rf"(?<![\w.%@]){word}(?![\w])" for word in text.split())

    parts = {
        "comment": _COMMENT.get(stage, r"(?:^|(?<=\s))\#\s.*"),
        "register": _REGISTER.get(stage, r"(?!)"),
        "type": words(_TYPES),
        "keyword": words(_KEYWORDS[stage]),
        "number": r"(?<![\w.])-?(?:0[xXfF][0-9A-Fa-f]+|\d[\d.]*(?:e[+-]?\d+)?(?:f|ll|u)?)(?!\w)",
        "call": r"[A-Za-z_]\w*(?=\(|<\w+>\()",
        "name": r"[A-Za-z_]\w*",
    }
    return re.compile("|".join(f"(?P<{kind}>{text})" for kind, text in parts.items()))


def tokens(line: str, stage: Stage) -> Iterator[tuple[Kind, str]]:
    """Split one line into ``(kind, text)``; the texts joined are the line."""
    end = 0
    for match in _pattern(stage).finditer(line):
        if match.start() > end:
            yield "", line[end : match.start()]
        yield match.lastgroup or "", match[0]  # type: ignore[misc]
        end = match.end()
    if end < len(line):
        yield "", line[end:]
