"""A definition as Python source that builds it again."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from enum import Enum
from types import EllipsisType
from typing import Any, cast

import numpy as np

from fuser.api.builder import Builder
from fuser.api.call import Call
from fuser.api.tensor import Handle
from fuser.core.dtypes import DataType
from fuser.schedule.circular import Pipelined, WarpSpecialized

_NAMES = re.compile(r"\b(LoadStoreOpType|MemoryType|ParallelType|Pipelined|WarpSpecialized)\b")


def to_python(fd: Builder) -> str:
    """Print what the user called; executed, the text makes an equal fusion and schedule."""
    keywords = ["numpy_broadcasting=True"] if fd.numpy_broadcasting else []
    default = fd.loops.default
    keywords += [] if default == "auto" else [f"default_unroll={default!r}"]
    keywords += ["exact_loops=True"] if fd.loops.exact else []
    body = [_line("fd", call) for call in fd.calls]
    body += [_line(d.target, d.call) for d in fd.directives]
    used = {"DataType", "FusionDefinition", *(n for line in body for n in _NAMES.findall(line))}
    return "\n".join(
        (
            f"from fuser import {', '.join(sorted(used))}",
            "",
            f"with FusionDefinition({', '.join(keywords)}) as fd:",
            *(body or ["    pass"]),
        )
    )


def _line(target: str, call: Call) -> str:
    return f"    {_assignment(call)}{target}.{call.method}({_arguments(call)})"


def _assignment(call: Call) -> str:
    """Print ``x = `` or ``(a, b) = ``; nothing for `add_output`."""
    return "" if call.result is None else f"{_text(call.result)} = "


def _arguments(call: Call) -> str:
    positional = [_text(argument) for argument in call.args]
    return ", ".join([*positional, *(f"{k}={_text(v)}" for k, v in call.kwargs.items())])


def _text(item: Any) -> str:
    match item:
        case Handle():
            return item.name
        case EllipsisType():
            return "..."
        case slice():
            bounds = cast("Any", item)
            return f"slice({_text(bounds.start)}, {_text(bounds.stop)}, {_text(bounds.step)})"
        case np.generic():
            return _text(item.item())
        case DataType() | Enum():
            return f"{type(item).__name__}.{item.name}"
        case Pipelined() | WarpSpecialized():
            options = (f"{f.name}={_text(getattr(item, f.name))}" for f in fields(item))
            return f"{type(item).__name__}({', '.join(options)})"
        case float() if not math.isfinite(item):
            return f"float({str(item)!r})"
        case tuple():
            parts: tuple[Any, ...] = cast("Any", item)
            return f"({', '.join(map(_text, parts))}{',' * (len(parts) == 1)})"
        case list():
            items: list[Any] = cast("Any", item)
            return f"[{', '.join(map(_text, items))}]"
        case _:
            return repr(item)
