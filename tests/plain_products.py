"""Plain products of tensor cores: layouts, widths, dtypes, epilogues and rings, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from product_cases import BARRIER, ROLES, TOKEN
from product_schedules import D, Product, relu_cast, with_bias

EDGES = ((64, 64, 64), (63, 65, 72), (65, 64, 8), (1, 8, 1), (8, 8, 0), (129, 40, 17),
         (200, 264, 1000))  # fmt: skip
"""M, N and K around the edges of tiles; odd rows are copied by threads."""


def plain() -> dict[str, Callable[[], Product]]:
    """Return products by name: layouts, widths, dtypes, epilogues and rings."""
    made: dict[str, Callable[[], Product]] = {}

    def add(name: str, **choices: Any) -> None:
        made[name] = partial(Product, **choices)

    for swizzle in ("none", "32B", "64B", "128B"):
        for turned in ((False, False), (True, False), (False, True), (True, True)):
            majors = "".join("mn"[i] if t else "k" for i, t in enumerate(turned))
            add(f"{swizzle}-{majors}", swizzle=swizzle, turned=turned)
    for n in (8, 16, 40, 72, 128, 192, 256):
        add(f"n{n}", tile=(64, n, 64))
    for n in (72, 256):
        add(f"n{n}-turned", tile=(64, n, 64), turned=(True, True))
    add("narrow", tile=(64, 64, 16), swizzle="32B")
    add("deep", tile=(64, 64, 128), stages=2)
    add("m128", tile=(128, 128, 64))
    for epilogue in (relu_cast, with_bias):
        add(epilogue.__name__, epilogue=epilogue)
        add(f"{epilogue.__name__}-f16", epilogue=epilogue, dtype=D.Half, turned=(False, True))
    for stages in (0, 1, 2, 4):
        add(f"stages{stages}", stages=stages)
        if stages:
            add(f"stages{stages}-token", stages=stages, kind=TOKEN)
            add(f"stages{stages}-barrier", stages=stages, kind=BARRIER)
            add(f"stages{stages}-roles", stages=stages, kind=ROLES)
    add("rolled", default_unroll="rolled", epilogue=relu_cast)
    add("roles-m128", tile=(128, 64, 64), kind=ROLES)
    return made


PLAIN = plain()
