"""A fusion as text, one value per line, for people."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

from fuser.fusion.attrs import Attrs, ConstantAttrs, InputAttrs
from fuser.fusion.graph import FusionGraph, Value
from fuser.fusion.shapes import shape_text


def to_text(graph: FusionGraph) -> str:
    """Print every value as ``t3: bf16[x_size0, 4096] = add(x, t2)``, then the outputs."""
    lines = [value_text(graph, v) for v in graph.values]
    lines += [f"constraint {c.lhs!r} == {c.rhs!r}  ({c.why})" for c in graph.constraints]
    outputs = [f"{o.value} -> {o.alias_of}" if o.alias_of else o.value for o in graph.outputs]
    return "\n".join([*lines, f"return {', '.join(outputs)}"])


def value_text(graph: FusionGraph, value: Value) -> str:
    """Print one value with its operands and attributes."""
    if isinstance(value.attrs, ConstantAttrs):
        return f"{value.name}: {value.dtype.short} = {value.attrs.value!r}"
    shape = shape_text(value.shape) if value.shape or not graph.is_scalar(value) else ""
    arguments = [*graph.operand_names(value), *attrs_text(value.attrs)]
    return f"{value.name}: {value.dtype.short}{shape} = {value.op}({', '.join(arguments)})"


def attrs_text(attrs: Attrs) -> list[str]:
    """Print the attributes as ``name=value`` texts."""
    if isinstance(attrs, InputAttrs):
        return _input_text(attrs)
    return [f"{f.name}={_text(getattr(attrs, f.name))}" for f in fields(attrs)]


def _input_text(attrs: InputAttrs) -> list[str]:
    rank = len(attrs.contiguity)
    texts = [f"contiguity={_text(attrs.contiguity)}"] if rank else []
    if attrs.stride_order != tuple(range(rank))[::-1]:
        texts.append(f"stride_order={_text(attrs.stride_order)}")
    return [*texts, "is_cpu=True"] if attrs.is_cpu else texts


def _text(item: Any) -> str:
    if not isinstance(item, tuple):
        return repr(item)
    parts: tuple[Any, ...] = cast("Any", item)
    return f"[{', '.join(map(_text, parts))}]"
