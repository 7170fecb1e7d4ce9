"""Mbarriers of the modelled blocks."""
from typing import Any

init: Any
inval: Any
arrive: Any
fence_init: Any
wait_parity: Any
wait_token: Any
