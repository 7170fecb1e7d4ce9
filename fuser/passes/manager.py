"""Running passes: verify after each one, tell observers, detect no-ops by identity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol, TypeVar

from fuser.core.errors import VerifyError


class Verifiable(Protocol):
    """Anything with a ``verify`` method."""

    def verify(self) -> None:
        """Raise `VerifyError` if malformed."""
        ...


IR = TypeVar("IR", bound=Verifiable)


class Pass(Protocol[IR]):
    """A named IR -> IR function. Returns its argument itself when nothing changes."""

    name: ClassVar[str]

    def __call__(self, ir: IR, /) -> IR:
        """Rewrite `ir`."""
        ...


Observer = Callable[[str, object], None]
"""Called with ``(stage, ir)`` after every step that changed something."""


def run_passes(ir: IR, passes: Sequence[Pass[IR]], observers: Sequence[Observer] = ()) -> IR:
    """Apply `passes` in order; the IR is valid before and after every one."""
    ir.verify()
    for step in passes:
        before, ir = ir, step(ir)
        if ir is before:
            continue
        try:
            ir.verify()
        except VerifyError as e:
            raise VerifyError(f"after pass {step.name}: {e}") from e
        for observe in observers:
            observe(step.name, ir)
    return ir
