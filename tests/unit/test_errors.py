"""Errors carry the user's line; locations are the user's and never this package's."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

from fuser.core import errors, location
from fuser.core.errors import DefinitionError, FuserError
from fuser.core.location import SourceLocation, caller_location

pytestmark = pytest.mark.unit

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, FuserError)]
HERE = SourceLocation("model.py", 12, "block")


def test_all_errors_are_listed():
    assert {c.__name__ for c in CLASSES} >= {
        "FuserError", "DefinitionError", "ScheduleError", "VerifyError", "InputError",
        "CompileError", "LaunchError", "BackendError", "ProtocolError", "ResultMismatchError",
    }  # fmt: skip


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_every_error_is_one_of_ours_and_says_when_it_is_raised(cls: type[FuserError]):
    assert cls.__name__.endswith("Error")
    assert issubclass(cls, Exception)
    assert inspect.getdoc(cls)
    with pytest.raises(FuserError, match=r"^t0: rank 3; at most 2 were needed$"):
        raise cls("t0: rank 3; at most 2 were needed")


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_a_known_line_comes_first(cls: type[FuserError]):
    error = cls("t0: rank 3; at most 2 were needed", HERE)
    assert str(error) == "model.py:12: t0: rank 3; at most 2 were needed"
    assert error.location is HERE


def test_an_unknown_line_is_none():
    assert DefinitionError("t0: rank 3").location is None


def test_location_prints_as_editors_read_it():
    assert str(HERE) == "model.py:12"


# --- Who the caller is ----------------------------------------------------------------------------


def module(name: str, package: str, source: str, file: str) -> ModuleType:
    """Execute `source` as a module that claims that name, package and file."""
    made = ModuleType(name)
    made.__dict__.update(__package__=package, __file__=file)
    exec(compile(source, file, "exec"), made.__dict__)
    return made


CALL = "def call(f):\n    return f()\n"


def test_a_direct_call_is_located_at_its_line():
    expected = inspect.currentframe().f_lineno + 1
    found = caller_location()
    assert found == SourceLocation(__file__, expected, "test_a_direct_call_is_located_at_its_line")


def test_frames_of_the_package_are_passed_over():
    inner = module("fuser.api.ops", "fuser.api", CALL, "/x/fuser/api/ops.py")
    outer = module("fuser", "fuser", CALL, "/x/fuser/__init__.py")
    found = outer.call(lambda: inner.call(caller_location))
    assert (found.file, found.function) == (__file__, "<lambda>")
    expected = inspect.currentframe().f_lineno + 1
    found = outer.call(caller_location)
    assert (found.file, found.line) == (__file__, expected)


DATACLASS = """
@dataclass
class Op:
    def __post_init__(self):
        self.location = caller_location()
"""


def test_methods_that_a_dataclass_generates_are_passed_over(monkeypatch: pytest.MonkeyPatch):
    """Their file is "<string>"; their globals are those of the module that defines the class."""
    ours = ModuleType("fuser.api.made_up")
    monkeypatch.setitem(sys.modules, ours.__name__, ours)
    ours.__dict__.update(
        __package__="fuser.api", dataclass=dataclass, caller_location=caller_location
    )
    exec(compile(DATACLASS, "/x/fuser/api/made_up.py", "exec"), ours.__dict__)
    found = ours.Op().location
    assert (found.file, found.function) == (__file__, inspect.currentframe().f_code.co_name)


@pytest.mark.parametrize("name", ["fuser_demo", "fuser_ext.model", "myfuser", "__main__"])
def test_users_of_similar_names_beside_the_package_are_users(name: str):
    folder = location.__file__.removesuffix("/core/location.py")
    file = f"{folder}_{name}.py"
    user = module(name, name.rpartition(".")[0], CALL, file)
    assert user.call(caller_location) == SourceLocation(file, 2, "call")


def test_nobody_outside_the_package_is_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(location, "_is_ours", lambda frame: True)
    assert caller_location() is None
