"""``fuser.ops``: every operation of ``fd.ops`` as a function.

On tensors of a fusion a function adds to that fusion, without any (``full([8], 1)``) to the fusion
that is being written (inside `@fuser.fuse` or ``with FusionDefinition()``); on plain arrays it runs
at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from inspect import Signature, signature
from typing import Any

from fuser.api.destination import destination
from fuser.api.fuse import FusedFunction
from fuser.api.ops import Ops, missing, operation_names


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("_") or name not in __dir__():
        raise missing(name)
    return _function(name)


def __dir__() -> list[str]:
    return operation_names()


def _method(name: str) -> Any:
    return getattr(Ops, name)


@cache
def _function(name: str) -> Callable[..., Any]:
    @wraps(_method(name))
    def function(*args: Any, **kwargs: Any) -> Any:
        fd = destination(args, kwargs)
        if fd is None:
            return immediate(*args, **kwargs)
        return getattr(fd.ops, name)(*args, **kwargs)

    parameters = list(signature(_method(name)).parameters.values())[1:]  # without self
    vars(function)["__signature__"] = Signature(parameters)
    immediate = FusedFunction(function)
    return function
