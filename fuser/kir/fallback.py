"""What a kernel does less well than its schedule asked for, because of the inputs of its class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fuser.core.expr import Expr, evaluate, variables


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why the copy engine cannot load or store a tensor.

    Attributes
    ----------
    what
        A clause about the tensor, or the name of a number of bytes that is no multiple of 16.
    nbytes
        That number over size and stride variables; None where `what` is the whole clause.
    cure
        What the caller may do about it.
    """

    what: str
    nbytes: Expr | None
    cure: str

    def text(self, values: Mapping[str, int] | None = None) -> str:
        """Return the clause, with the number of bytes where `values` tell it."""
        if self.nbytes is None:
            return self.what
        known = values is not None and variables(self.nbytes) <= values.keys()
        number = evaluate(self.nbytes, values or {}) if known else self.nbytes
        return f"{self.what} is {number} bytes; needed a multiple of 16"


@dataclass(frozen=True, slots=True)
class Fallback:
    """A tensor that all threads copy, where the copy engine was asked for and cannot.

    Attributes
    ----------
    tensor, source
        The copy and the global tensor that it is made of; of a store both are the output.
    is_operand
        Whether products of tensor cores read it, which want what the copy engine loads.
    """

    tensor: str
    source: str
    obstacle: Obstacle
    is_operand: bool = False

    @property
    def is_store(self) -> bool:
        """Whether it is an output that is stored."""
        return self.tensor == self.source

    def __str__(self) -> str:
        way = "stored" if self.is_store else "copied"
        return f"{self.tensor}: {way} by threads, not TMA: {self.obstacle.text()}"
