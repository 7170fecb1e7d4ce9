"""Which parts of the device prelude a kernel needs.

A prelude file is a sequence of paragraphs separated by blank lines outside braces. A paragraph is
printed when the kernel, or a printed paragraph, mentions a name it defines; so a kernel carries
only the conversions and functions it uses, without a list that somebody must keep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from fuser.codegen.env import template_dir

FILES = ("types", "convert", "math", "vector", "reduce")
_WORD = re.compile(r"[A-Za-z_]\w*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_DEFINED = re.compile(
    r"""^\s*\#define\s+(\w+)                                     # macro
      | ^(?:template\s*<[^\n]*>\s*)?(?:struct|class|enum|union)\s+(?:alignas\(\d+\)\s+)?(\w+)
      | ^typedef\b[^;{]*?(\w+)(?:\[[^;]*\])?\s*;
      | ^using\s+(\w+)
      | ^(?:static\s+)?(?:__device__\s+|__constant__\s+|static\s+)*(?:constexpr|const)\s+[\w ]+?(\w+)(?:\[\w*\])?\s*=
      | ^(?:template\s*<[^\n]*>\s*)?[^\n=;(]*\b(?:__device__|__forceinline__|inline)\b[^\n=;(]*?
        \b(operator\b\s*[^\s(]+|\w+)\s*(?:<[^()\n]*>)?\s*\(
    """,
    re.M | re.X,
)


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Some definitions that belong together."""

    text: str
    defines: frozenset[str]
    mentions: frozenset[str]


def _paragraphs(source: str) -> Iterator[str]:
    lines, depth = list[str](), 0
    for line in source.splitlines():
        if not line.strip() and depth == 0:
            if lines:
                yield "\n".join(lines)
            lines = []
            continue
        code = _COMMENT.sub("", line)
        depth += code.count("{") - code.count("}")
        lines.append(line.rstrip())
    if lines:
        yield "\n".join(lines)


def parse(source: str) -> tuple[Paragraph, ...]:
    """Split a prelude file; paragraphs that define nothing (file headers) are dropped."""
    found = list[Paragraph]()
    for text in _paragraphs(source):
        code = _COMMENT.sub("", text)
        defines = {name for match in _DEFINED.findall(code) for name in match if name}
        mentions = frozenset(_WORD.findall(code))
        if defines:
            found.append(Paragraph(text, frozenset(defines), mentions))
    return tuple(found)


@lru_cache(maxsize=1)
def paragraphs() -> tuple[Paragraph, ...]:
    """Return all paragraphs of the prelude, in file order."""
    folder = template_dir() / "prelude"
    sources = (folder / f"{name}.cuh" for name in FILES)
    return tuple(p for path in sources if path.exists() for p in parse(path.read_text()))


def words(text: str) -> frozenset[str]:
    """Return the identifiers of a C text, comments left out."""
    return frozenset(_WORD.findall(_COMMENT.sub("", text)))


@lru_cache(maxsize=256)
def _closure(names: frozenset[str]) -> tuple[Paragraph, ...]:
    needed, wanted, grown = set[Paragraph](), set(names), True
    while grown:
        new = {p for p in paragraphs() if p not in needed and not wanted.isdisjoint(p.defines)}
        needed |= new
        wanted |= {name for p in new for name in p.mentions}
        grown = bool(new)
    return tuple(p for p in paragraphs() if p in needed)


@lru_cache(maxsize=1)
def _defined() -> frozenset[str]:
    return frozenset(name for p in paragraphs() for name in p.defines)


def prelude_for(code: str) -> str:
    """Return the paragraphs that `code` needs, in file order."""
    return "\n".join(p.text for p in _closure(words(code) & _defined()))
