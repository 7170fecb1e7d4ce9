"""Roles."""
from typing import Any

run: Any
