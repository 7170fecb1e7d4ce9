"""The Jinja2 environment. The only module that imports jinja2, and only to print."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


@lru_cache(maxsize=1)
def template_dir() -> Path:
    """Return the template folder: the one inside an installed wheel, else the checkout's."""
    here = Path(__file__).resolve()
    packaged = here.parents[1] / "_templates"
    return packaged if packaged.is_dir() else here.parents[2] / "kernels" / "templates"


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Build the environment; an undefined name in a template is an error."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(template_dir()),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        auto_reload=False,
        cache_size=-1,
    )


@cache
def template(path: str) -> jinja2.Template:
    """Return a compiled template, parsed once per process."""
    return environment().get_template(path)
