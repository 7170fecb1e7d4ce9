"""The recipes, in the order they are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from fuser.fusion.graph import FusionGraph
from fuser.schedule.recipes.pointwise import pointwise
from fuser.schedule.recipes.problem import Problem
from fuser.schedule.recipes.reduction import reduction
from fuser.schedule.recipes.rows import rows
from fuser.schedule.recipes.transpose import transpose
from fuser.schedule.schedule import Schedule

Recipe: TypeAlias = Callable[[Problem], Schedule | None]

WHOLE: tuple[Recipe, ...] = (rows,)
"""Recipes for a fusion that the segmentation would cut at its reductions."""

CATALOG: tuple[Recipe, ...] = (transpose, pointwise, reduction)
"""Recipes for segments."""


def choose_whole(problem: Problem) -> Schedule | None:
    """Return a schedule of a whole fusion in one kernel; None when it must be cut."""
    for recipe in WHOLE:
        schedule = recipe(problem)
        if schedule is not None:
            return schedule
    return None


def candidates(problem: Problem) -> Iterator[tuple[FusionGraph, Schedule]]:
    """Yield ``(graph, schedule)`` of every recipe that takes the problem, the preferred one first.

    A recipe may insert caches, so each gets a graph of its own. A schedule whose lowering fails
    (a tile that a reshape cuts through, say) gives way to the next.
    """
    for recipe in CATALOG:
        trial = replace(problem, graph=problem.graph.copy())
        schedule = recipe(trial)
        if schedule is not None:
            yield trial.graph, schedule
