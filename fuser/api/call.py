"""What the user wrote, for `repr(fd)`: calls that define the fusion, and directives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Subject(Protocol):
    """A tensor that directives are about."""

    @property
    def fd(self) -> Any:
        """The definition that it belongs to."""
        ...

    @property
    def name(self) -> str:
        """Its name now."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """``result = fd.<method>(*args, **kwargs)`` as the user wrote it."""

    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


@dataclass(frozen=True, slots=True)
class Directed:
    """One directive as the user wrote it.

    Attributes
    ----------
    tensor
        What it is about; None: several tensors, it is a method of ``fd.sched``.
    axis
        Loop axis of the tensor that it is about.
    """

    call: Call
    tensor: Subject | None = None
    axis: int | None = None

    @property
    def target(self) -> str:
        """What the call is a method of."""
        if self.tensor is None:
            return "fd.sched"
        return self.tensor.name if self.axis is None else f"{self.tensor.name}.axis({self.axis})"
