"""Which definition a call adds to: that of its tensors, else the one being written here."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import numpy as np

from fuser.api.owner import Owner
from fuser.api.tensor import Handle

_OPEN: ContextVar[tuple[Owner, ...]] = ContextVar("open definitions of this thread", default=())


def enter(fd: Owner) -> None:
    """Make `fd` the definition being written, in this thread or task."""
    _OPEN.set((*_OPEN.get(), fd))


def leave() -> None:
    """Return to the definition that was written before the last `enter`."""
    _OPEN.set(_OPEN.get()[:-1])


@contextmanager
def writing(fd: Owner) -> Generator[None, None, None]:
    """Make `fd` the definition being written, inside ``with``."""
    enter(fd)
    try:
        yield
    finally:
        leave()


def is_writing_other(fd: Owner) -> bool:
    """Whether a definition is being written here, and it is not `fd`."""
    opened = _OPEN.get()
    return bool(opened) and opened[-1] is not fd


def destination(*arguments: Any) -> Owner | None:
    """Return the definition that a call with `arguments` adds to; None: it runs at once.

    Without tensors and scalars of a fusion to go by, as in ``full([8], 1)``, it is the innermost
    definition being written, unless there are arrays to run on.
    """
    has_array = False
    for leaf in _leaves(arguments):
        if isinstance(leaf, Handle):
            return leaf.fd
        has_array |= is_array(leaf)
    opened = _OPEN.get()
    return opened[-1] if opened and not has_array else None


def is_array(leaf: Any) -> bool:
    """Whether `leaf` looks like an array of some library; NumPy's scalars are numbers."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, np.generic)


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        yield from _leaves([*cast("Any", tree).values()])
    elif isinstance(tree, list | tuple):
        for item in cast("tuple[Any, ...]", tree):
            yield from _leaves(item)
    else:
        yield tree
