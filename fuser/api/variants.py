"""What a fusion was compiled to: by shape class, and in one by what recipes asked of sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from fuser.api.shape_class import ShapeClass
from fuser.core.boundary import Boundary, hold


class Bounded(Protocol):
    """Something that fits sizes within `boundaries`."""

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """The promises on sizes under which it is what would be made of them anew."""
        ...


T = TypeVar("T", bound=Bounded)


@dataclass(slots=True)
class Variants(Generic[T]):
    """Compiled once for each side of a boundary; reading needs no lock."""

    made: dict[ShapeClass, tuple[T, ...]] = field(default_factory=dict[ShapeClass, tuple[T, ...]])

    def find(self, cls: ShapeClass, sizes: Mapping[str, int]) -> T | None:
        """Return what was made for a class and such sizes."""
        for item in self.made.get(cls, ()):
            if hold(item.boundaries, sizes):
                return item
        return None

    def add(self, cls: ShapeClass, item: T) -> T:
        """Keep what was made for a class and return it."""
        self.made[cls] = (*self.made.get(cls, ()), item)
        return item

    def __iter__(self) -> Iterator[T]:
        return (item for items in self.made.values() for item in items)

    def __len__(self) -> int:
        return sum(map(len, self.made.values()))
