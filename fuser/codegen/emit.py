"""A kernel as CUDA C++: one template per statement, no logic in any of them."""

from __future__ import annotations

from fuser.codegen.env import template
from fuser.codegen.prelude import prelude_for, words
from fuser.core.expr import ONE, Const, to_c
from fuser.kir.core import (
    BarrierArray,
    Kernel,
    Param,
    ScalarParam,
    SharedArray,
    SizeParam,
    Stmt,
    TensorMapParam,
    TensorParam,
    walk_stmts,
)
from fuser.kir.stmts import Outlined, SetMaxRegisters, Wgmma
from fuser.kir.verify import DYNAMIC_ALIGN, verify_kernel

_INDEX_TYPE = {"i32": "int", "i64": "long long"}
_THREAD_NAMES = {
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
    shared = _shared_memory(kernel)
    params = [_param(p) for p in kernel.params]
    names = _thread_names(kernel, words(body))
    functions = [
        template("kernel/device_function.cu.j2").render(s.definition(render)) + "\n\n"
        for s in walk_stmts(kernel.body)
        if isinstance(s, Outlined)
    ]
    products = {s.function: s for s in walk_stmts(kernel.body) if isinstance(s, Wgmma)}
    functions += [
        template("kernel/wgmma_function.cu.j2").render(s.definition()) + "\n\n"
        for s in products.values()
    ]
    text = "".join(functions) + template("kernel/function.cu.j2").render(
        bounds=_bounds(kernel) + _cluster_dims(kernel),
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


def _shared_memory(kernel: Kernel) -> list[str]:
    """Declare shared arrays and barriers, or carve them from the launch's dynamic memory."""
    arrays: list[SharedArray | BarrierArray] = [*kernel.shared, *kernel.barriers]
    if not kernel.dynamic_shared_bytes:
        return [_static(a) for a in arrays]
    offsets = kernel.shared_offsets()
    lines = [f"extern __shared__ __align__({DYNAMIC_ALIGN}) u8 smem_raw[];"]
    for a in arrays:
        at = f"smem_raw + {offsets[a.name]}" if offsets[a.name] else "smem_raw"
        lines.append(f"{_element(a)}* const {a.name} = reinterpret_cast<{_element(a)}*>({at});")
    return lines


def _element(array: SharedArray | BarrierArray) -> str:
    return "u64" if isinstance(array, BarrierArray) else array.dtype.cuda


def _static(array: SharedArray | BarrierArray) -> str:
    if isinstance(array, BarrierArray):
        return f"__shared__ u64 {array.name}[{array.size}];"
    return f"__shared__ alignas({array.align_bytes}) {_element(array)} {array.name}[{array.numel}];"


def _bounds(kernel: Kernel) -> str:
    extents = [e.value for e in kernel.block if isinstance(e, Const)]
    if len(extents) < len(kernel.block):
        return ""
    threads = extents[0] * extents[1] * extents[2]
    # ptxas ignores setmaxnreg where the registers at entry do not follow from the bounds.
    hands_over = any(isinstance(s, SetMaxRegisters) for s in walk_stmts(kernel.body))
    least = kernel.min_blocks or int(hands_over)
    blocks = f", {least}" if least else ""
    return f"__launch_bounds__({threads}{blocks}) "


def _cluster_dims(kernel: Kernel) -> str:
    if kernel.cluster_size == 1:
        return ""
    return f"__cluster_dims__({', '.join(map(str, kernel.cluster))}) "


def _block_names(kernel: Kernel) -> dict[str, str]:
    """Return what the coordinates of a block, and of its cluster, are: a cluster tiles the grid."""
    names: dict[str, str] = {}
    for axis, blocks in zip("xyz", kernel.cluster, strict=True):
        index = f"blockIdx.{axis}"
        names[f"b{axis}"] = index if blocks == 1 else f"{index} / {blocks}"
        names[f"c{axis}"] = "0" if blocks == 1 else f"{index} % {blocks}"
    return names | {"cluster_rank": "cluster_ctarank()"}


def _thread_names(kernel: Kernel, used: frozenset[str]) -> list[str]:
    """Define the block and thread coordinates that the body uses, and block extents likewise."""
    lines: list[str] = []
    if "role_thread" in used:
        # The same in all lanes of a warp, and the compiler knows it.
        lines.insert(0, "const int role_thread = __shfl_sync(~0u, thread, 0);")
        used |= {"thread"}
    if "thread" in used:
        flat = kernel.block[1] == kernel.block[2] == ONE
        used |= {"tx"} if flat else {"tx", "ty", "tz", "block_x", "block_y"}
        linear = "tx" if flat else "tx + block_x * (ty + block_y * tz)"
        lines.insert(0, f"const idx thread = {linear};")
    extents = [
        f"{n} = {to_c(e) if isinstance(e, Const) else f'blockDim.{n[-1]}'}"
        for n, e in zip(("block_x", "block_y", "block_z"), kernel.block, strict=True)
        if n in used
    ]
    if extents:
        lines.insert(0, f"const int {', '.join(extents)};")
    known = _block_names(kernel) | _THREAD_NAMES
    coordinates = [f"{n} = {builtin}" for n, builtin in known.items() if n in used]
    return [f"const idx {', '.join(coordinates)};", *lines] if coordinates else lines
