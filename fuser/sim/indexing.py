"""Index expressions on lanes: int64, powers of two by shift, optional 32-bit overflow check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fuser.core.errors import ProtocolError
from fuser.core.expr import BinOp, Const, Expr, Select, Var, evaluate, to_c

INT32_MAX = 2**31 - 1


def evaluate_index(e: Expr, env: Mapping[str, Any]) -> Any:
    """Evaluate like `core.expr.evaluate`, with shifts and masks for power-of-two divisors."""
    match e:
        case Const(value):
            return value
        case Var(name):
            return env[name]
        case BinOp("/" | "%" as op, lhs, Const(divisor)) if divisor & (divisor - 1) == 0 < divisor:
            value = evaluate_index(lhs, env)
            return value >> divisor.bit_length() - 1 if op == "/" else value & divisor - 1
        case BinOp(op, lhs, rhs):
            operands = {"a": evaluate_index(lhs, env), "b": evaluate_index(rhs, env)}
            return evaluate(BinOp(op, Var("a"), Var("b")), operands)
        case Select(cond, if_true, if_false):
            sides = {"a": if_true, "b": if_false, "c": cond}
            operands = {k: evaluate_index(v, env) for k, v in sides.items()}
            return evaluate(Select(Var("c"), Var("a"), Var("b")), operands)


def check_int32(e: Expr, env: Mapping[str, Any], active: Any, where: str) -> None:
    """Raise `ProtocolError` if `e` or a subexpression leaves the 32-bit range in an active lane."""
    if not isinstance(e, BinOp | Select):
        return
    parts = (e.lhs, e.rhs) if isinstance(e, BinOp) else (e.if_true, e.if_false)
    for part in parts:
        check_int32(part, env, active, where)
    value = np.asarray(evaluate_index(e, env))
    value = value[active] if value.ndim else value
    if value.size and max(abs(int(value.min())), abs(int(value.max()))) > INT32_MAX:
        raise ProtocolError(
            f"{where}: {to_c(e)} reaches {int(value.max())}; the kernel's 32-bit index type ends "
            f"at {INT32_MAX}"
        )
