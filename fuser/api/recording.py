"""One call by the user: its line, its place in `repr(fd)`, and where its errors point."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from fuser.api.call import Call
from fuser.api.tensor import StaticNeededError
from fuser.core.errors import DefinitionError
from fuser.core.location import caller_location

P = ParamSpec("P")
R = TypeVar("R")


def recorded(method: Callable[P, R]) -> Callable[P, R]:
    """Make a method of `FusionDefinition` or `Ops` one recorded call.

    Calls made inside another recorded call are its implementation: they are not recorded again
    and their values carry the user's line of the outermost call.
    """
    name = method.__name__

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        owner: Any = args[0]
        fd: Any = owner.definition
        if fd.location is not None:
            return method(*args, **kwargs)
        fd.check_open(name, args)
        fd.location = caller_location()
        try:
            result = method(*args, **kwargs)
        except DefinitionError as error:
            if error.location is not None or isinstance(error, StaticNeededError):
                raise
            raise DefinitionError(str(error), fd.location) from None
        except TypeError as error:
            what = f"{name}: takes no such arguments: {error}"
            raise DefinitionError(what, fd.location) from error
        finally:
            fd.location = None
        fd.calls.append(Call(owner.prefix + name, args[1:], dict(kwargs), result))
        return result

    return call
