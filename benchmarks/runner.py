"""A run as a list of steps: with time left shown, and with what was found kept when it is ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from benchmarks.measure import Outcome
from benchmarks.results import Results


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a run.

    Attributes
    ----------
    seconds
        About how long it takes, for the time that is left.
    run
        Adds what it finds to the results.
    """

    text: str
    seconds: float
    run: Callable[[Results], None]


def run_steps(steps: Sequence[Step], results: Results, console: Console | None = None) -> Results:
    """Run the steps, in order; neither Ctrl-C nor a step that fails loses what was found."""
    out = console or Console(stderr=True)
    done = 0
    with _progress(out) as progress:
        task = progress.add_task("", total=sum(step.seconds for step in steps))
        try:
            for step in steps:
                progress.update(task, description=step.text)
                if not out.is_terminal:
                    out.print(f"[{done + 1}/{len(steps)}] {step.text}", highlight=False)
                _run(step, results)
                progress.advance(task, step.seconds)
                done += 1
        except KeyboardInterrupt:
            rest = ", ".join(step.text for step in steps[done:])
            results.left_out.append(f"interrupted before: {rest}")
            results.interrupted = True
    for row in (*results.rows, *results.sweeps):
        row.bound_by(results.ceilings)
    return results


def _run(step: Step, results: Results) -> None:
    """Run a step; if it fails, that is a result, and the others go on."""
    try:
        step.run(results)
    except Exception as error:
        results.failures.append(f"{step.text}: {type(error).__name__}: {error}")


def keep(outcome: Outcome, rows: list[Any], results: Results) -> None:
    """Add what a job gave to `rows` of the results."""
    rows += outcome.rows
    results.left_out += outcome.left_out
    results.failures += outcome.failures


def _progress(out: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(),
        TextColumn("elapsed"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        console=out, disable=not out.is_terminal, transient=True,
    )  # fmt: skip
