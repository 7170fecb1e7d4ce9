"""The recipes, in the order they are tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from fuser.core.errors import ScheduleError
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


def choose(problem: Problem) -> Schedule:
    """Return the schedule of the first recipe that takes the problem."""
    for recipe in CATALOG:
        schedule = recipe(problem)
        if schedule is not None:
            return schedule
    names = ", ".join(v.name for v in problem.stores)
    raise ScheduleError(
        f"fusion of {names}: no recipe takes it; tried {', '.join(r.__name__ for r in CATALOG)}"
    )
