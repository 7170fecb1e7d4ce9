"""The definition that a tensor belongs to, as far as tensors and directives need it."""

from __future__ import annotations

from typing import Any, Protocol

from fuser.api.call import Directed
from fuser.core.location import SourceLocation
from fuser.fusion.graph import FusionGraph, Value
from fuser.schedule.hand import HandSchedule


class Owner(Protocol):
    """What `Handle` and its directives ask of a `FusionDefinition`."""

    fusion: FusionGraph
    ops: Any
    location: SourceLocation | None
    directives: list[Directed]

    @property
    def hand(self) -> HandSchedule:
        """The schedule that directives change."""
        ...

    def value(self, name: str) -> Value:
        """Return a value of the fusion, or one that a directive added."""
        ...

    def adopt(self, name: str) -> Any:
        """Return the user's object for a tensor that a directive added."""
        ...
