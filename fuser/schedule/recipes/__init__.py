"""Recipes: functions that choose a schedule for a fusion without a user's help."""

from fuser.schedule.recipes.catalog import CATALOG, Recipe, choose
from fuser.schedule.recipes.problem import Problem

__all__ = ["CATALOG", "Problem", "Recipe", "choose"]
