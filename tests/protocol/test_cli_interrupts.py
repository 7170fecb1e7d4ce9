"""Ctrl-C ends every command soon, with exit status 130, one line, and no process left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cli_process import ROOT

pytestmark = [pytest.mark.protocol, pytest.mark.slow]

SOON = 5.0
"""Seconds that an interrupted command may take on a busy machine."""

SLOW = """
import time
open("begun", "w").close()
time.sleep(100)
"""


@pytest.fixture
def begin(tmp_path):
    """Start a command in a process group of its own, as a shell does; nothing outlives the test."""
    begun: list[subprocess.Popen[str]] = []
    environment = os.environ | {"PYTHONPATH": str(ROOT), "FUSER_CACHE_DIR": str(tmp_path / "cache")}

    def begin(*arguments: str) -> subprocess.Popen[str]:
        begun.append(subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=tmp_path, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        ))  # fmt: skip
        return begun[-1]

    yield begin
    for process in begun:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def interrupt(process: subprocess.Popen[str], send) -> tuple[str, str]:
    """Interrupt a command and return what it printed; it must end soon, with status 130."""
    began = time.monotonic()
    send(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - began < SOON
    assert process.returncode == 130, err
    return out, err


def wait_for(what) -> None:
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until, "the command has not begun"
        time.sleep(0.02)


def running(group: int) -> list[str]:
    """Return the command lines of the processes of a group, zombies left out."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, pgrp = (folder / "stat").read_text().rpartition(") ")[2].split()[:3]
            arguments = (folder / "cmdline").read_text()
        except OSError:  # it has ended meanwhile
            continue
        if pgrp == str(group) and state != "Z":
            found.append(arguments)
    return found


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["process", "group"])
@pytest.mark.parametrize("delay", [0.0, 1.5], ids=["as workers start", "as workers work"])
def test_the_matrix_ends_with_all_its_workers(send, delay, begin):
    process = begin("fuser", "check", "--matrix")
    wait_for(lambda: any("spawn_main" in args for args in running(process.pid)))
    time.sleep(delay)
    _, err = interrupt(process, send)
    assert err == "interrupted\n"
    wait_for(lambda: not running(process.pid))


@pytest.mark.parametrize("command", ["explain", "sass", "check", "run"])
def test_a_script_ends_and_nothing_follows_it(command, begin, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    process = begin("fuser", command, "slow.py")
    wait_for((tmp_path / "begun").exists)
    out, err = interrupt(process, os.killpg)
    assert err == "interrupted\n"
    assert out == ""


def test_the_demo_ends(begin):
    process = begin("fuser", "demo")
    assert process.stdout.readline() == "\n", "the heading of its first case"
    _, err = interrupt(process, os.killpg)
    assert err == "interrupted\n"


def test_benchmarks_end_while_they_read_a_file(begin, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    process = begin("benchmarks", "slow.py")
    wait_for((tmp_path / "begun").exists)
    out, err = interrupt(process, os.killpg)
    assert err == "interrupted\n"
    assert out == ""
