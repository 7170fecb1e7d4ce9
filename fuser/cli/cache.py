"""``python -m fuser cache``: compiled kernels, and how they are launched, kept on disk."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fuser.cli import show
from fuser.cli.command import Command
from fuser.cli.script import complain
from fuser.runtime.cache import cubin_store, launch_store, unpack
from fuser.runtime.store import Entry, EntryStore, unseal

_AGES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def configure(part: ArgumentParser) -> None:
    """Add the arguments of ``cache``."""
    part.add_argument(
        "what", nargs="?", choices=("list", "clear"), default="list",
        help="print the entries, most recently used first (default), or delete them all",
    )  # fmt: skip


def execute(args: Namespace) -> int:
    """List or clear the folder of this user."""
    store, launches = cubin_store(), launch_store()
    out, err = show.console(), show.console(stderr=True)
    status = 0
    for part, show_list in ((store, listing), (launches, total)):
        obstacle = part.obstacle()
        if obstacle is not None:
            complain(err, "cache", f"{part.folder}: cannot be listed: {obstacle}")
            status = 1
        elif args.what == "list":
            show_list(out, part)
        else:
            status = max(status, clear(out, part))
    return status


def clear(out: Console, store: EntryStore) -> int:
    """Delete every entry; 1 when some could not be."""
    gone = store.clear()
    size = show.size(sum(entry.nbytes for entry in gone))
    left = len(store.entries())
    line = f"{store.folder}: deleted {show.plural(len(gone), 'file')}, {size}"
    out.print(Text(line), soft_wrap=True)
    if left:
        out.print(Text(f"{show.plural(left, 'file')} could not be deleted", style="bold red"))
    return int(left > 0)


def listing(out: Console, store: EntryStore) -> None:
    """Print a table of the entries and what they take together."""
    entries = store.entries()
    if entries:
        table = Table()
        table.add_column("kernel", overflow="fold")
        table.add_column("arch")
        table.add_column("size", justify="right", no_wrap=True)
        table.add_column("last used", justify="right", no_wrap=True)
        now = time.time()
        for entry in reversed(entries):
            used = f"{age(now - entry.used)} ago"
            table.add_row(*titles(entry), show.size(entry.nbytes), used)
        out.print(table)
    total(out, store)


def total(out: Console, store: EntryStore) -> None:
    """Print what the entries of a folder take together."""
    entries = store.entries()
    size = show.size(sum(entry.nbytes for entry in entries))
    count = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
    line = f"{store.folder}: {count}, {size} of at most {show.size(store.limit)}"
    out.print(Text(line), soft_wrap=True)


def titles(entry: Entry) -> tuple[Text, Text]:
    """Return the kernel and the architecture of an entry, which may be damaged or gone."""
    try:
        payload = unseal(entry.key, entry.path.read_bytes())
    except OSError:
        payload = None
    if payload is None:
        return Text("damaged, or of another version", style="yellow"), Text("")
    cubin = unpack(payload)
    return Text(cubin.name), Text(cubin.arch)


def age(seconds: float) -> str:
    """Print how long ago something was, in its largest unit."""
    for length, unit in _AGES:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return "0 s"


COMMAND = Command(
    "cache", "list the compiled kernels kept on disk, or delete them", execute, configure
)
