"""Recipes: functions that choose a schedule for a fusion without a user's help."""

from fuser.schedule.recipes.catalog import CATALOG, WHOLE, Recipe, choose, choose_whole
from fuser.schedule.recipes.problem import Problem

__all__ = ["CATALOG", "WHOLE", "Problem", "Recipe", "choose", "choose_whole"]
