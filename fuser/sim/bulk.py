"""Bulk copies."""
from typing import Any

load: Any
