"""The fusions of a script: those it runs, and those it only defines."""

from __future__ import annotations

from argparse import Namespace

from rich.console import Console

from fuser.api.definition import FusionDefinition
from fuser.api.listen import listening, title_of
from fuser.cli.made_up import compile_for_made_up_inputs
from fuser.cli.script import BAD_INPUT, Outcome, complain, run_script
from fuser.core.errors import FuserError


def fusions_of(args: Namespace, err: Console) -> Outcome:
    """Run ``args.file`` and lower what it has not run; it is said when there is no fusion in it."""
    outcome = run_script(args.file, args.arguments, err, verbose=args.verbose)
    if outcome.status == BAD_INPUT and not outcome.recorder.records:
        return outcome
    outcome.status = outcome.status or lower_definitions(outcome, err)
    if not outcome.recorder.records:
        what = "defines no fusion; needed a FusionDefinition or a call of a @fuse function"
        outcome.status = outcome.status or complain(err, args.file, what)
    return outcome


def lower_definitions(outcome: Outcome, err: Console) -> int:
    """Lower the module-level definitions that the script has not run; return the exit status."""
    ran = [record.fd for record in outcome.recorder.records]
    for item in outcome.variables.values():
        if not isinstance(item, FusionDefinition) or item in ran or not item.fusion.outputs:
            continue
        ran.append(item)
        with listening(outcome.recorder):
            try:
                compile_for_made_up_inputs(item)
            except FuserError as error:
                what = f"{error}\n(for made-up sizes: the script runs it on none of its own)"
                return complain(err, title_of(item), what)
    return 0
