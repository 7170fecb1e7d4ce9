"""What a run found, and its file: rows, ceilings, what was left out, and the machine it ran on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

OURS = "fuser"


@dataclass(slots=True)
class Row:
    """One implementation of one workload at one size; what was not measured is None.

    Attributes
    ----------
    family
        Name of the workload without its size.
    error
        Relative error against float64, by norms.
    us, low_us, high_us
        Device time: median, tenth and ninetieth percentile.
    discarded
        Repetitions that did not count, because the host was late.
    GBps
        Every input once and every output once, over the median.
    operations
        Of the definition, an addition or an exponential alike: see `benchmarks.operations`.
    host_us
        What a call costs the host.
    cold_ms, warm_ms
        From the definition to the first result: nothing cached, and compiled before on this disk.
    interpreter_ms
        A run on the NumPy interpreter, of a smaller size.
    """

    workload: str
    implementation: str
    family: str = ""
    error: float | None = None
    us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    discarded: int = 0
    bytes: int = 0
    GBps: float | None = None
    operations: int | None = None
    ceiling: str = ""
    ceiling_GBps: float | None = None
    of_ceiling: float | None = None
    host_us: float | None = None
    cold_ms: float | None = None
    warm_ms: float | None = None
    interpreter_ms: float | None = None

    def bound_by(self, ceilings: dict[str, float]) -> None:
        """Add the ceiling of this run."""
        gbps = ceilings.get(self.ceiling)
        if self.GBps is not None and gbps:
            self.ceiling_GBps, self.of_ceiling = gbps, round(self.GBps / gbps, 4)


@dataclass(slots=True)
class Results:
    """A run.

    Attributes
    ----------
    machine
        Commit, GPU, driver, versions, time.
    ceilings
        GB/s of the hand-written kernels.
    peaks
        TFLOP/s of the hand-written kernels.
    host
        Microseconds of calls to compare host costs with.
    rows, sweeps
        The table; and the sizes that only the picture shows.
    not_yet
        Workloads of the peers that fuser cannot do, and why.
    left_out
        What was not measured here, and why.
    failures
        What fuser got wrong or could not do.
    interrupted
        Whether Ctrl-C ended it.
    """

    machine: dict[str, str]
    ceilings: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    host: dict[str, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    sweeps: list[Row] = field(default_factory=list)
    not_yet: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def discarded(self) -> int:
        """Repetitions of all rows that did not count."""
        return sum(row.discarded for row in (*self.rows, *self.sweeps))

    @property
    def timed(self) -> bool:
        """Whether a GPU was there."""
        return any(row.us is not None for row in self.rows)

    def only(self, names: Iterable[str]) -> Results:
        """Return the rows of workloads whose names contain one of `names`, all without one.

        Raises
        ------
        ValueError
            A name is in no row.
        """
        names = tuple(names)
        known = dict.fromkeys(row.workload for row in (*self.rows, *self.sweeps))
        for name in names:
            if not name.strip() or not any(name in workload for workload in known):
                raise ValueError(
                    f"no workload of these results is called {name!r}; needed part of a name of "
                    f"{', '.join(known) or 'none: there is no row'}"
                )
        if not names:
            return self

        def is_wanted(workload: str) -> bool:
            return any(name in workload for name in names)

        return replace(
            self, rows=[row for row in self.rows if is_wanted(row.workload)],
            sweeps=[row for row in self.sweeps if is_wanted(row.workload)],
            not_yet={name: why for name, why in self.not_yet.items() if is_wanted(name)},
        )  # fmt: skip

    def save(self, path: Path) -> None:
        """Write the file; nothing is written for what was not measured."""
        raw = asdict(self)
        for key in ("rows", "sweeps"):
            raw[key] = [{k: v for k, v in row.items() if v is not None} for row in raw[key]]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(raw, indent=1) + "\n")


def load(path: Path) -> Results:
    """Read the file of a run, of an older runner too.

    Raises
    ------
    ValueError
        It is no file of results.
    """
    try:
        return _results(json.loads(path.read_text()))
    except OSError as error:
        what = str(error.strerror)
    except KeyError as error:
        what = f"has no {error}"
    except ValueError as error:
        what = f"is no JSON: {error}"
    except (TypeError, AttributeError) as error:
        what = f"holds something else: {error}"
    raise ValueError(f"{path}: {what}; needed a file that python -m benchmarks --json wrote")


def _results(raw: dict[str, Any]) -> Results:
    known = {f.name for f in fields(Results)} - {"machine", "rows", "sweeps"}
    rest = {key: value for key, value in raw.items() if key in known}
    rows, sweeps = ([_row(row) for row in given] for given in (raw["rows"], raw.get("sweeps", ())))
    ceilings = {row.ceiling: row.ceiling_GBps for row in rows if row.ceiling_GBps is not None}
    rest.setdefault("ceilings", ceilings)
    return Results(dict(raw["machine"]), rows=rows, sweeps=sweeps, **rest)


def _row(raw: dict[str, Any]) -> Row:
    row = Row(**raw)
    for item in fields(Row):
        value = getattr(row, item.name)
        if not isinstance(value, str if item.type == "str" else int | float | None):
            raise TypeError(f"{item.name} of a row is {value!r}")
    if not row.bytes and row.GBps and row.us:
        row.bytes = round(row.GBps * row.us * 1e3)
    row.family = row.family or re.sub(r" \d+x\d+$", "", row.workload)
    return row


def by_workload(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of every workload, in order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.workload, []).append(row)
    return groups


def best_peer(rows: Iterable[Row]) -> Row | None:
    """Return the fastest row that is not ours."""
    peers = [row for row in rows if row.implementation != OURS and row.us is not None]
    return min(peers, default=None, key=lambda row: row.us or 0.0)


def against(ours: Row, peer: Row | None) -> float | None:
    """Return how many times as fast as `peer` we are."""
    if peer is None or not peer.us or not ours.us:
        return None
    return peer.us / ours.us
