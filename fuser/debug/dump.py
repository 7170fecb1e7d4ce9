"""``FUSER_DUMP``: stages of a compilation as files, numbered in the order they were made."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from fuser.core.errors import OptionError
from fuser.debug.stages import Stage, parse_stages, snapshot

SUFFIX: dict[Stage, str] = {
    "fusion": "txt", "schedule": "txt", "nest": "txt", "kir": "txt",
    "cuda": "cu", "ptx": "ptx", "sass": "sass",
}  # fmt: skip
DEFAULT_FOLDER = "fuser_dump"
_NUMBERED = re.compile(r"\d\d+_\w[\w-]*\.(txt|cu|ptx|sass)")


@dataclass(slots=True)
class Dump:
    """The files of one compilation; `observe` is given to the passes."""

    folder: Path
    stages: frozenset[Stage]
    written: int = 0

    def observe(self, step: str, ir: object) -> None:
        """Write what `build_program` shows of a step, if its stage was asked for."""
        taken = snapshot(step, ir)
        if taken is not None:
            self.write(taken.stage, taken.step, taken.kernel, taken.text)

    def write(self, stage: Stage, step: str, kernel: str | None, text: str) -> None:
        """Write ``<number>_<kernel>_<stage>_<step>``, the step left out where it is the stage."""
        if stage not in self.stages:
            return
        if not self.written:
            self._clear()
        parts = [f"{self.written:02d}", kernel or "", stage, "" if step == stage else step]
        name = "_".join(part for part in parts if part)
        (self.folder / f"{name}.{SUFFIX[stage]}").write_text(text.rstrip() + "\n")
        self.written += 1

    def _clear(self) -> None:
        """Remove what an earlier process left in this folder."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(
                f"FUSER_DUMP_DIR: {self.folder}: {error.strerror}; a folder that can be made and "
                "written is needed"
            ) from error
        for path in self.folder.iterdir():
            if _NUMBERED.fullmatch(path.name):
                path.unlink()


def dump_from_environment(index: int, title: str) -> Dump | None:
    """Return the dump of the process's compilation number `index`, if ``FUSER_DUMP`` wants one.

    Raises
    ------
    OptionError
        ``FUSER_DUMP`` names something that is no stage.
    """
    wanted = parse_stages(os.environ.get("FUSER_DUMP", ""), "FUSER_DUMP")
    if not wanted:
        return None
    root = Path(os.environ.get("FUSER_DUMP_DIR") or DEFAULT_FOLDER)
    label = re.sub(r"[^\w-]+", "_", title.removesuffix("\n"))
    return Dump(root / f"{index:03d}_{label}", wanted)
