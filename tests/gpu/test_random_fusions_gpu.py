"""Random fusions on a GPU: every output element is one that the definition allows.

Seeds are fixed, so a failure here is the same one everywhere; chunks spread over ``pytest -n``.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.runtime import driver
from fuser.runtime.cache import CUBINS
from fuser.runtime.log import CompileWarning
from tests.fuzz.check import Tally, check
from tests.fuzz.enclosure import CUDA
from tests.fuzz.fusions import RandomFusion, draw_fusion
from tests.fuzz.source import Source

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

CHUNK = 200
"""Of a hundred, the share of elements that the oracle decides varies by three percent."""
CHUNKS = 6
COMPILERS = 4


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.timeout(600)
def test_random_fusions_on_the_gpu(chunk: int) -> None:
    seeds = range(chunk * CHUNK, (chunk + 1) * CHUNK)
    fusions = {seed: draw_fusion(Source.seeded(seed)) for seed in seeds}
    failures: list[str] = []
    tally = Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompileWarning)  # spills are the compile tests' subject
        compile_ahead(list(fusions.values()))
        for seed, fusion in fusions.items():
            try:
                check(fusion, "cuda", CUDA, tally)
            except Exception as error:
                failures.append(f"seed {seed}: {type(error).__name__}: {error}\n{fusion!r}")
    assert not failures, f"{len(failures)} of {CHUNK} fusions fail\n\n" + "\n\n".join(failures)
    assert tally.share > 0.9, f"the oracle decided only {tally}"


def compile_ahead(fusions: list[RandomFusion]) -> None:
    """Put the cubins of all kernels into the cache; NVRTC runs without the GIL."""
    arch = driver.device(0).arch
    sources: dict[tuple[str, str], None] = {}
    for fusion in fusions:
        sources |= dict.fromkeys(sources_of(fusion))

    def build(item: tuple[str, str]) -> Any:
        return CUBINS.get(*item, arch, on_spill="ignore")

    with ThreadPoolExecutor(COMPILERS) as pool:
        for future in [pool.submit(build, item) for item in sources]:
            future.exception()  # told again, with its fusion, by the execution


def sources_of(fusion: RandomFusion) -> list[tuple[str, str]]:
    """Return (source, name) of every kernel; none where building fails, as execution will."""
    try:
        programs = [program_of(fusion.fd, bind(fusion.fd, call)) for call in fusion.calls()]
        return [(emit(kernel), kernel.name) for p in programs for kernel in p.kernels]
    except Exception:
        return []
