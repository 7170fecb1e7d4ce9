"""A kernel as CUDA C++: one template per statement, no logic in any of them."""

from __future__ import annotations

from fuser.codegen.env import template
from fuser.codegen.prelude import prelude_for, words
from fuser.core.expr import Const, to_c
from fuser.kir.core import (
    Kernel,
    Param,
    ScalarParam,
    SharedArray,
    SizeParam,
    Stmt,
    TensorMapParam,
    TensorParam,
)
from fuser.kir.verify import verify_kernel

_INDEX_TYPE = {"i32": "int", "i64": "long long"}
_THREAD_NAMES = {
    "bx": "blockIdx.x",
    "by": "blockIdx.y",
    "bz": "blockIdx.z",
    "tx": "threadIdx.x",
    "ty": "threadIdx.y",
    "tz": "threadIdx.z",
}
_LINE = 100


def emit(kernel: Kernel) -> str:
    """Return the CUDA C++ source of `kernel`: header, what it needs of the prelude, the kernel.

    Raises
    ------
    VerifyError
        The kernel violates the IR's invariants.
    """
    verify_kernel(kernel)
    body = render(kernel.body)
    shared = [_shared(s) for s in kernel.shared]
    params = [_param(p) for p in kernel.params]
    names = _thread_names(kernel, words(body))
    text = template("kernel/function.cu.j2").render(
        bounds=_bounds(kernel),
        name=kernel.name,
        params=_wrapped(params, len(kernel.name)),
        body="\n".join(part for part in (*shared, *names, body) if part),
    )
    return template("kernel/source.cu.j2").render(
        header="".join(f"// {line}".rstrip() + "\n" for line in kernel.header),
        index=_INDEX_TYPE[kernel.index],
        prelude=prelude_for(text, kernel.index),
        function=text,
    )


def render(body: tuple[Stmt, ...]) -> str:
    """Print statements one below the other."""
    return "\n".join(template(s.template()).render(s.context(render)) for s in body)


def _param(p: Param) -> str:
    match p:
        case TensorParam(name=name, dtype=dtype, mode=mode, aliased=aliased):
            const = "const " if mode == "in" else ""
            restrict = "" if aliased else " __restrict__"
            return f"{const}{dtype.cuda}*{restrict} {name}"
        case ScalarParam(name, dtype):
            return f"const {dtype.cuda} {name}"
        case SizeParam(name):
            return f"const idx {name}"
        case TensorMapParam(name=name):
            return f"const __grid_constant__ CUtensorMap {name}"


def _wrapped(params: list[str], indent: int) -> str:
    line = ", ".join(params)
    if len(line) + indent < _LINE - 30:
        return line
    return "\n    " + ",\n    ".join(params)


def _shared(array: SharedArray) -> str:
    return (
        f"__shared__ alignas({array.align_bytes}) {array.dtype.cuda} {array.name}[{array.numel}];"
    )


def _bounds(kernel: Kernel) -> str:
    extents = [e.value for e in kernel.block if isinstance(e, Const)]
    if len(extents) < len(kernel.block):
        return ""
    threads = extents[0] * extents[1] * extents[2]
    blocks = f", {kernel.min_blocks}" if kernel.min_blocks else ""
    return f"__launch_bounds__({threads}{blocks}) "


def _thread_names(kernel: Kernel, used: frozenset[str]) -> list[str]:
    """Define the block and thread coordinates that the body uses, and block extents likewise."""
    coordinates = [f"{n} = {builtin}" for n, builtin in _THREAD_NAMES.items() if n in used]
    lines = [f"const idx {', '.join(coordinates)};"] if coordinates else []
    extents = [
        f"{n} = {to_c(e) if isinstance(e, Const) else f'blockDim.{n[-1]}'}"
        for n, e in zip(("block_x", "block_y", "block_z"), kernel.block, strict=True)
        if n in used
    ]
    return lines + ([f"const int {', '.join(extents)};"] if extents else [])
