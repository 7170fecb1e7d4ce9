"""The demo: what it shows at 80 and 120 columns, and that a wrong result does not pass."""

from __future__ import annotations

import io

import ml_dtypes
import numpy as np
import pytest
from cli_process import fuser
from rich.console import Console

from fuser.cli import demo

pytestmark = [pytest.mark.slow, pytest.mark.nvrtc]


def test_demo_shows_every_part(tmp_path):
    done = fuser("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    text = done.stdout
    for title in ("gelu(x + bias), bf16", "h = x + residual; rms_norm(h) * weight, bf16"):
        assert title in text
    for part in ("Fusion", "Schedule of ", "Loop nest of ", "CUDA of ", "Result", "See more"):
        assert f"\n{part}" in text
    assert text.count("right: max error") == 3
    assert "registers" in text
    assert "bytes of shared memory, no spills" in text
    for more in ("explain FILE.py", "FUSER_DUMP=", "doctor", "docs"):
        assert more in text
    assert "typedef" not in text, "the prelude is left out"
    assert not [line for line in text.splitlines() if line != line.rstrip()]


bias_gelu = demo.bias_gelu


def small_case(scale: float) -> demo.Case:
    case = bias_gelu(np.random.default_rng(0), 3)

    def reference(*inputs):
        return tuple(scale * r for r in case.reference(*inputs))

    return demo.Case(case.title, case.fd, case.inputs, reference)


@pytest.mark.parametrize(("scale", "right"), [(1.0, True), (1.02, False), (np.nan, False)])
def test_a_wrong_result_is_called_wrong(scale, right):
    out = Console(file=io.StringIO(), width=120)
    assert demo.show_case(out, small_case(scale)) is right
    assert ("right: " if right else "WRONG: ") in out.file.getvalue()


def test_a_wrong_result_is_the_exit_status(monkeypatch, capsys):
    monkeypatch.setattr(demo, "bias_gelu", lambda rng, rows: small_case(1.02))
    monkeypatch.setattr(demo, "ROWS_ON_HOST", 2)
    monkeypatch.setattr(demo, "ROWS_ON_GPU", 2)
    assert demo.execute(None) == 1
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.parametrize("ulps", [0, 1, -3])
def test_errors_count_places_of_the_output(ulps, rng):
    expected = rng.standard_normal(64).astype(ml_dtypes.bfloat16)
    bits = expected.view(np.int16) + np.int16(ulps)
    error = demo.error_of(bits.view(ml_dtypes.bfloat16), expected.astype(np.float64))
    assert error.ulps == pytest.approx(abs(ulps), rel=0.5)
    assert (error.relative == 0) is (ulps == 0)


def test_an_infinity_is_infinitely_wrong():
    got = np.array([1, np.inf], ml_dtypes.bfloat16)
    assert demo.error_of(got, np.array([1.0, 2.0])).ulps == np.inf
