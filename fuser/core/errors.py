"""Every exception the package raises on purpose, and what it warns of.

Message form: ``<object>: <what, with values>; <what was needed>``. When the user's line is
known it is the first line of the text, so an editor can jump to it.
"""

from __future__ import annotations

from fuser.core.location import SourceLocation


class FuserError(Exception):
    """Base of all errors raised by this package.

    Parameters
    ----------
    message
        What is wrong, with values, and what was needed.
    location
        The user's line, when one is known.
    """

    def __init__(self, message: str, location: SourceLocation | None = None) -> None:
        super().__init__(f"{location}: {message}" if location else message)
        self.location = location


class DefinitionError(FuserError):
    """A fusion is defined in a way that has no meaning (dtype, rank, shape, operand)."""


class MissingOperationError(DefinitionError, AttributeError):
    """There is no operation of this name."""


class ScheduleError(FuserError):
    """A scheduling directive cannot be applied."""


class VerifyError(FuserError):
    """An IR object violates its own invariants: a bug of this package, not of the user."""


class InputError(FuserError):
    """An array passed to a fusion differs from what the definition promised."""


class CompileError(FuserError):
    """NVRTC or ptxas rejected a kernel, or its log holds something that must not pass."""


class LaunchError(FuserError):
    """The driver refused to load or launch a kernel."""


class BackendError(FuserError):
    """The requested backend does not exist on this machine."""


class ProtocolError(FuserError):
    """The modelled machine saw a race, a deadlock or an illegal access."""


class ResultMismatchError(FuserError):
    """``fd.validate`` found an output that differs from the reference."""


class OptionError(FuserError):
    """An environment variable or a command line asks for something that does not exist."""


class FallbackWarning(UserWarning):
    """Inputs made a run take a slower kernel than its schedule asked for; results are the same."""


class CacheWarning(UserWarning):
    """The folder of cached kernels cannot be used; every process compiles its own."""
