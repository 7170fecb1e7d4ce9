"""The results as a table for a terminal, with ratios to the best peer and to the ceiling."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.results import OURS, Results, Row, against, best_peer, by_workload


def columns(results: Results) -> list[tuple[str, list[str]]]:
    """Return ``(title, cells)`` of every column in which something stands."""
    groups = by_workload(results.rows)
    rows = [row for group in groups.values() for row in group]

    def ratio(row: Row) -> str:
        return _number(against(row, best_peer(groups[row.workload])) if _ours(row) else None, 3)

    cells: dict[str, Callable[[Row], str]] = {
        "workload": lambda row: row.workload,
        "implementation": lambda row: row.implementation,
        "us": lambda row: _number(row.us, 1),
        "GB/s": lambda row: _number(row.GBps, 0),
        "of ceiling": lambda row: _number(row.of_ceiling, 3),
        "vs best peer": ratio,
        "host us": lambda row: _number(row.host_us, 1),
        "cold ms": lambda row: _number(row.cold_ms, 0),
        "warm ms": lambda row: _number(row.warm_ms, 0),
        "interpreter ms": lambda row: _number(row.interpreter_ms, 1),
        "error": lambda row: "" if row.error is None else f"{row.error:.1e}",
        "discarded": lambda row: str(row.discarded or ""),
    }
    found = [(title, [cell(row) for row in rows]) for title, cell in cells.items()]
    return [(title, column) for title, column in found if any(column)]


def text(results: Results) -> str:
    """Print everything: the table, what it is relative to, and what is not in it."""
    found = columns(results)
    widths = [max(len(title), *map(len, column)) for title, column in found]
    lines = [_line([title for title, _ in found], widths)]
    lines += [_line(cells, widths) for cells in zip(*(c for _, c in found), strict=True)]
    return "\n".join([*lines, "", *notes(results)])


def notes(results: Results) -> list[str]:
    """Return the lines below the table."""
    machine = results.machine
    lines = [f"ceiling {name}: {gbps:.0f} GB/s" for name, gbps in results.ceilings.items()]
    lines += [f"peak {name}: {peak:.1f} TFLOP/s" for name, peak in results.peaks.items()]
    lines += [f"host cost of {name}: {us:.1f} us" for name, us in results.host.items()]
    if results.timed:
        lines.append(
            f"{results.discarded} repetitions discarded and repeated, because the host was late"
        )
    lines += [f"not yet: {name}: {reason}" for name, reason in results.not_yet.items()]
    lines += [f"left out: {what}" for what in results.left_out]
    lines += [f"FAILED: {what}" for what in results.failures]
    lines.append(", ".join(f"{key} {value}" for key, value in machine.items() if key != "command"))
    return lines


def _line(cells: list[str] | tuple[str, ...], widths: list[int]) -> str:
    """Align names to the left, numbers to the right."""
    aligned = [
        cell.ljust(width) if number < 2 else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(aligned).rstrip()


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _ours(row: Row) -> bool:
    return row.implementation == OURS
