"""Recipes: functions that choose a schedule for a fusion without a user's help."""

from fuser.schedule.recipes.catalog import CATALOG, WHOLE, Recipe, candidates, choose_whole
from fuser.schedule.recipes.problem import Problem

__all__ = ["CATALOG", "WHOLE", "Problem", "Recipe", "candidates", "choose_whole"]
