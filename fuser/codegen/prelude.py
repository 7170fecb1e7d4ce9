"""Which parts of the device prelude a kernel needs.

A prelude file is a sequence of top-level definitions. One is printed when the kernel, or a printed
definition, mentions a name it defines, unless it is an overload or a specialisation for an element
type that is mentioned nowhere. So a kernel carries only the conversions and functions it uses,
without a list that somebody must keep. A comment belongs to the definition right below it; a
comment before a blank line is not printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from fuser.codegen.env import template_dir
from fuser.kir.core import IndexType

FILES = (
    "types", "index", "convert", "integer", "math", "vector", "reduce",
    "mbarrier", "tma", "cluster", "cp_async", "roles", "wgmma",
)  # fmt: skip
GATES = frozenset(("i8", "u8", "f16", "bf16", "f8e4m3", "f8e5m2", "double"))
"""Types whose overloads are left out of kernels that never mention the type."""

_ALL_TYPES = GATES | {"bool", "i32", "i64", "float"}

_WORD = re.compile(r"[A-Za-z_]\w*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_DOUBLE_LITERAL = re.compile(r"(?<![\w.])\d+(?:\.\d*(?:e[+-]?\d+)?|e[+-]?\d+)(?![\w.])|_F64\b")
_ALIGNAS = re.compile(r"alignas\((?:[^()]|\([^()]*\))*\)")
_TEMPLATE = re.compile(r"template\s*<[^\n{;]*?>(?=\s*[_a-z])")
_SPECIALISED = re.compile(r"template\s*<>[^\n(]*?\w+<(\w+)>")
_DEFINED = re.compile(
    r"""^\s*\#define\s+(\w+)
      | \b(?:struct|class|enum|union)\s+(\w+)
      | ^typedef\b[^;]*?(\w+)(?:\[[^;]*\])?\s*;
      | ^using\s+(\w+)
      | \b(?:constexpr|const|__constant__)\s+[\w ]+?(\w+)(?:\[\w*\])?\s*=
      | \b(?:__device__|__forceinline__|inline)\b[^\n=;(]*?\b(\w+)\s*(?:<[^()\n]*>)?\s*\(
    """,
    re.M | re.X,
)


@dataclass(frozen=True, slots=True)
class Definition:
    """One top-level definition, or a whole ``#if`` block.

    Attributes
    ----------
    mentions, body
        Identifiers of the whole text, and of what stands inside braces.
    gates
        Types without which nobody can need it.
    """

    text: str
    defines: frozenset[str]
    mentions: frozenset[str]
    body: frozenset[str]
    gates: frozenset[str]


def _split(source: str) -> Iterator[str]:
    """Yield top-level definitions with the comments above them."""
    lines, depth, conditional = list[str](), 0, 0
    for line in source.splitlines():
        code = _COMMENT.sub("", line).strip()
        conditional += code.startswith("#if") - code.startswith("#endif")
        depth += code.count("{") - code.count("}")
        if not line.strip() and depth == conditional == 0:
            lines = []  # a comment of the file, not of a definition
            continue
        lines.append(line.rstrip())
        ends = code.endswith((";", "}")) or (code.startswith("#") and not code.endswith("\\"))
        if ends and depth == conditional == 0 and not code.startswith("#pragma"):
            yield "\n".join(lines)
            lines = []


def _layers(code: str) -> tuple[str, str]:
    """Return what stands outside and what stands inside braces."""
    depth, outside, inside = 0, list[str](), list[str]()
    for char in code:
        depth -= char == "}"
        (inside if depth else outside).append(char)
        depth += char == "{"
    return "".join(outside), "".join(inside)


def parse(source: str) -> tuple[Definition, ...]:
    """Split the text of a prelude file."""
    return tuple(_definition(text) for text in _split(source))


def _definition(text: str) -> Definition:
    code = _ALIGNAS.sub("", _COMMENT.sub("", text))
    signature, body = _layers(code)
    names = _DEFINED.findall(_TEMPLATE.sub("", signature))
    defines = frozenset(name for match in names for name in match if name)
    if "#if" in signature:
        gates = frozenset[str]()
    else:
        gates = GATES & words(signature) | _ALL_TYPES & {*_SPECIALISED.findall(signature)}
    return Definition(text, defines, words(code), words(body), gates - defines)


@lru_cache(maxsize=1)
def definitions() -> tuple[Definition, ...]:
    """Return all definitions of the prelude, in file order."""
    folder = template_dir() / "prelude"
    sources = (folder / f"{name}.cuh" for name in FILES)
    return tuple(p for path in sources if path.exists() for p in parse(path.read_text()))


def words(text: str) -> frozenset[str]:
    """Return the identifiers of a C text, comments left out; "double" for its literals too."""
    code = _COMMENT.sub("", text)
    found = frozenset(_WORD.findall(code))
    return found | {"double"} if _DOUBLE_LITERAL.search(code) else found


@lru_cache(maxsize=256)
def _closure(names: frozenset[str]) -> tuple[Definition, ...]:
    needed, wanted, types, grown = set[Definition](), set(names), set(names), True
    while grown:
        new = {
            d
            for d in definitions()
            if d not in needed and not wanted.isdisjoint(d.defines) and d.gates <= types
        }
        needed |= new
        wanted |= {name for d in new for name in d.mentions}
        types |= {name for d in new for name in d.body}
        grown = bool(new)
    return tuple(d for d in definitions() if d in needed)


@lru_cache(maxsize=1)
def _vocabulary() -> frozenset[str]:
    return _ALL_TYPES.union(*(d.defines for d in definitions()))


def prelude_for(code: str, index: IndexType = "i32") -> str:
    """Return the definitions that `code` needs, in file order, each on its own lines."""
    builtin = frozenset(("min", "max")) if index == "i32" else frozenset[str]()
    names = words(code) & _vocabulary() - builtin
    return "".join(f"{d.text}\n" for d in _closure(names))
