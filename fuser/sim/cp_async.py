"""Copies of a thread."""
from typing import Any

copy: Any
