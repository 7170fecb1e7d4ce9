"""The circular-buffer directive: how many stages, how far ahead, by whom they are filled.

Source: `circular_buffering` in docs/circular_buffer.md. A loop that carries the directive is cloned
into prologue, main loop and epilogue (or into warp roles) by `fuser.passes.circular_buffer`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from fuser.core.errors import ScheduleError
from fuser.core.location import caller_location
from fuser.schedule.kinds import ParallelType


@dataclass(frozen=True, slots=True)
class Pipelined:
    """All threads compute; one of them issues the copies of later trips.

    Attributes
    ----------
    sync
        How a stage is found full: by the parity of its phase (one arrival by the elected thread) or
        by the token of the thread's own arrival (every thread arrives).
    war
        How a stage is found free: a barrier of the block at the end of each trip, of the cluster
        where its blocks share boxes, or an mbarrier per stage on which readers arrive. The first
        was measured as fast or faster.
    """

    sync: Literal["parity", "token"] = "parity"
    war: Literal["barrier", "mbarrier"] = "barrier"

    def __post_init__(self) -> None:
        _require_one_of("sync", self.sync, ("parity", "token"))
        _require_one_of("war", self.war, ("barrier", "mbarrier"))

    @property
    def words(self) -> str:
        """The type and its options, for people."""
        return f"pipelined, sync {self.sync}, war {self.war}"


@dataclass(frozen=True, slots=True)
class WarpSpecialized:
    """Extra warps issue the copies; the others compute.

    Attributes
    ----------
    on
        Thread axis that is extended by the producer's warps.
    num_registers
        ``(producer, consumer)`` registers a thread after the hand-over by ``setmaxnreg``; None
        leaves the compiler's choice.
    stage_slice_position
        Loop axes left of it count trips, a stage holds what is right of it; None: the compute-at
        position. If axis `on` is left of it, its indices are consumer groups: each computes trips
        of its own, and an equal part of the stages is its own.
    ping_pong
        Consumer groups run their inner loops of trips one after the other, in the order of the
        trips, so that one computes while the others do what follows the loop. All stages serve
        the group whose turn it is.
    """

    on: ParallelType = ParallelType.block_x
    num_registers: tuple[int, int] | None = None
    stage_slice_position: int | None = None
    ping_pong: bool = False

    def __post_init__(self) -> None:
        if not (_is_a(self.on, ParallelType) and self.on.is_block):
            raise ScheduleError(
                f"WarpSpecialized: on {getattr(self.on, 'name', repr(self.on))}; needed block_x, "
                "block_y or block_z",
                caller_location(),
            )
        if self.num_registers is not None:
            _require_registers(self.num_registers)
        if self.stage_slice_position is not None and not _is_int(self.stage_slice_position):
            raise ScheduleError(
                f"WarpSpecialized: stage_slice_position {self.stage_slice_position!r}; an int or "
                "None is needed",
                caller_location(),
            )
        if not _is_a(self.ping_pong, bool):
            raise ScheduleError(
                f"WarpSpecialized: ping_pong {self.ping_pong!r}; True or False is needed",
                caller_location(),
            )
        if self.ping_pong and self.stage_slice_position is None:
            raise ScheduleError(
                "WarpSpecialized: ping_pong is an order of consumer groups; needed a "
                f"stage_slice_position right of axis {self.on.name}",
                caller_location(),
            )

    @property
    def words(self) -> str:
        """The type and its options, for people."""
        words = [f"warp-specialised on {self.on.name}"]
        if self.num_registers is not None:
            words.append(f"registers {self.num_registers[0]} and {self.num_registers[1]}")
        if self.stage_slice_position is not None:
            words.append(f"stages sliced at position {self.stage_slice_position}")
        return ", ".join([*words, "ping-pong"] if self.ping_pong else words)


def _require_one_of(option: str, given: object, known: tuple[str, str]) -> None:
    if not _is_a(given, str) or given not in known:
        raise ScheduleError(
            f"Pipelined: {option} {given!r}; needed {known[0]!r} or {known[1]!r}", caller_location()
        )


def _require_registers(given: tuple[int, ...]) -> None:
    """Raise `ScheduleError` unless `given` is a pair of counts that ``setmaxnreg`` takes."""
    if not (_is_a(given, tuple) and len(given) == 2):
        raise ScheduleError(
            f"WarpSpecialized: num_registers {given!r}; needed (producer, consumer)",
            caller_location(),
        )
    for count in given:
        if not _is_int(count) or not 24 <= count <= 256 or count % 8:
            raise ScheduleError(
                f"WarpSpecialized: {count!r} registers a thread; setmaxnreg takes multiples of 8 "
                "from 24 to 256",
                caller_location(),
            )


def _is_a(given: object, kind: type) -> bool:
    """Whether `given` is of a kind; callers without a type checker may have given anything."""
    return isinstance(given, kind)


def _is_int(given: object) -> bool:
    return _is_a(given, int) and not _is_a(given, bool)


CircularBufferType: TypeAlias = Pipelined | WarpSpecialized


@dataclass(frozen=True, slots=True)
class CircularBuffer:
    """The directive.

    Attributes
    ----------
    stages
        Buffers of the ring.
    prefetch
        Trips that the copies run ahead: 0 <= prefetch < stages. Roles run ahead as far as stages
        are free, whatever distance was asked for.
    """

    stages: int
    prefetch: int
    type: CircularBufferType = Pipelined()

    @staticmethod
    def of(stages: int, distance: int | None, kind: CircularBufferType) -> CircularBuffer:
        """Return what the user asked for: no distance is the largest, negative ones count from S.

        That of roles is the largest, too: nothing but a stage that is not free holds a producer up.

        Raises
        ------
        ScheduleError
            A number is no int, or out of range; `kind` is no kind of pipeline.
        """
        for what, number, optional in (
            ("stages", stages, False), ("prefetch distance", distance, True),
        ):  # fmt: skip
            if not (_is_int(number) or (optional and number is None)):
                raise ScheduleError(f"circular_buffer: {what} {number!r}; an int is needed")
        if not _is_a(kind, Pipelined) and not _is_a(kind, WarpSpecialized):
            raise ScheduleError(
                f"circular_buffer: type {kind!r}; needed Pipelined(...) or WarpSpecialized(...)"
            )
        ahead = stages - 1 if distance is None else distance
        if ahead < -stages and stages >= 1:
            raise ScheduleError(
                f"circular_buffer: prefetch distance {distance} with {stages} stages; needed 0 to "
                f"{stages - 1}, or {-stages} to -1, which count from the stages"
            )
        asked = CircularBuffer(stages, ahead + stages if ahead < 0 else ahead, kind)
        return replace(asked, prefetch=stages - 1) if asked.is_specialized else asked

    def __post_init__(self) -> None:
        if self.stages < 1:
            raise ScheduleError(f"circular_buffer: {self.stages} stages; at least 1 is needed")
        if not 0 <= self.prefetch < self.stages:
            raise ScheduleError(
                f"circular_buffer: prefetch distance {self.prefetch} with {self.stages} stages; "
                f"needed 0 to {self.stages - 1}"
            )

    @property
    def is_specialized(self) -> bool:
        """Whether warps have roles."""
        return isinstance(self.type, WarpSpecialized)
