"""A definition as Python source that builds it again."""

from __future__ import annotations

import math
from types import EllipsisType
from typing import Any, cast

import numpy as np

from fuser.api.builder import Builder
from fuser.api.recording import Call
from fuser.api.tensor import Handle
from fuser.core.dtypes import DataType


def to_python(fd: Builder) -> str:
    """Print the calls the user made; executing the text defines an equal fusion as ``fd``."""
    keyword = "numpy_broadcasting=True" if fd.numpy_broadcasting else ""
    lines = [
        "from fuser import DataType, FusionDefinition",
        "",
        f"with FusionDefinition({keyword}) as fd:",
    ]
    lines += [f"    {_assignment(call)}fd.{call.method}({_arguments(call)})" for call in fd.calls]
    return "\n".join([*lines, *([] if fd.calls else ["    pass"])])


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
        case DataType():
            return repr(item)
        case EllipsisType():
            return "..."
        case slice():
            bounds = cast("Any", item)
            return f"slice({_text(bounds.start)}, {_text(bounds.stop)}, {_text(bounds.step)})"
        case np.generic():
            return _text(item.item())
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
