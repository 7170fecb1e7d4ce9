"""Names of the caller's local variables, given to the values they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuser.api.builder import Builder
from fuser.api.tensor import Handle
from fuser.fusion.names import is_valid_name


def names_from(fd: Builder, local_variables: Mapping[str, Any]) -> dict[str, str]:
    """Return which values of `fd` to rename to what.

    A value is renamed when exactly one variable holds it and that name is valid in CUDA C++ and
    not the name of another value (nor ``fd``, which `repr` gives to the definition).
    """
    held: dict[str, list[str]] = {}
    for variable, item in local_variables.items():
        if isinstance(item, Handle) and item.fd is fd:
            held.setdefault(item.name, []).append(variable)
    chosen = {
        value: variables[0]
        for value, variables in held.items()
        if len(variables) == 1 and is_valid_name(variables[0]) and variables[0] != "fd"
    }
    while clashes := [v for v, new in chosen.items() if fd.has(new) and new not in chosen]:
        for value in clashes:
            del chosen[value]
    return {value: new for value, new in chosen.items() if value != new}
