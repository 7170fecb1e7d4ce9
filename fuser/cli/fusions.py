"""The fusions of a script: those it runs, and those it only defines."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable

from rich.console import Console

from fuser.api.definition import FusionDefinition
from fuser.api.listen import listening, title_of
from fuser.cli.made_up import compile_for_made_up_inputs
from fuser.cli.script import BAD_INPUT, Outcome, complain, run_script, whole
from fuser.core.errors import FuserError


def fusions_of(args: Namespace, err: Console) -> Outcome:
    """Run ``args.file`` and lower what it has not run; it is said when there is no fusion in it."""
    outcome = whole(run_script(args.file, args.arguments, err, verbose=args.verbose))
    if outcome.status == BAD_INPUT and not outcome.recorder.records:
        return outcome
    outcome.status = outcome.status or lower(only_defined(outcome), outcome, err)
    if not outcome.recorder.records:
        what = "defines no fusion; needed a FusionDefinition or a call of a @fuse function"
        outcome.status = outcome.status or complain(err, args.file, what)
    return outcome


def only_defined(outcome: Outcome) -> list[FusionDefinition]:
    """Return the module-level definitions that the script has not run by the schedule they have.

    That is the one set by hand where there is one, also if the definition ran without it.
    """
    ran = {record.fd for record in outcome.recorder.records}
    items = (item for item in outcome.variables.values() if isinstance(item, FusionDefinition))
    return [
        fd
        for fd in dict.fromkeys(items)
        if fd.fusion.outputs and not (fd.hand.frozen if fd.directives else fd in ran)
    ]


def lower(fds: Iterable[FusionDefinition], outcome: Outcome, err: Console) -> int:
    """Add records of definitions that did not run, for made-up sizes; return the exit status."""
    for fd in fds:
        by_hand = bool(fd.directives)
        with listening(outcome.recorder):
            try:
                compile_for_made_up_inputs(fd, by_hand)
            except FuserError as error:
                what = f"{error}\n(for made-up sizes: the script runs it on none of its own)"
                return complain(err, title_of(fd), what)
        outcome.recorder.records[-1].by_hand = by_hand
    return 0
