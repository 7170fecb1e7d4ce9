"""Put a definition that is used once, by the store right behind it, into that store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fuser.kir.core import Stmt
from fuser.kir.scalar import Ref, walk
from fuser.kir.stmts import Assign, Define, Store
from fuser.passes.mentions import stmt_scalars


def inline_last(definitions: Sequence[Stmt], stores: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """Return `definitions` then `stores`, without definitions that only a store names.

    rewrite::

        const bf16 y = cast<bf16>(t); out[i] = y;   ->   out[i] = cast<bf16>(t);
    """
    uses: Counter[str] = Counter()
    for stmt in (*definitions, *stores):
        for value in stmt_scalars(stmt):
            uses.update(node.name for node in walk(value) if isinstance(node, Ref))
    defined = {s.name: s for s in definitions if isinstance(s, Define)}
    gone: set[str] = set()
    result: list[Stmt] = []
    for store in stores:
        if isinstance(store, Store | Assign) and isinstance(store.value, Ref):
            source = defined.get(store.value.name)
            if source is not None and uses[source.name] == 1:
                gone.add(source.name)
                store = replace(store, value=source.value)
        result.append(store)
    kept = [s for s in definitions if not (isinstance(s, Define) and s.name in gone)]
    return (*kept, *result)
