"""Calls on torch tensors that need no binding: others of the same layouts were bound before.

What a call depends on, besides what its tensors hold, is its *signature* (dtype, shape, strides
and device of every tensor, and integer scalars) and its addresses: how they are aligned, and
whether what is written shares memory with what else is written, or a given output with an input. A
signature is compared with that of the latest call, else looked up, and so are the addresses. What
is not known here goes the long way, which checks everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fuser.api.tensor import Scalar, Tensor, Vector
from fuser.runtime.memory import span_elems
from fuser.runtime.torch_call import Guard, Signature, TorchCall, guard_of, never, signature_of

if TYPE_CHECKING:
    from fuser.api.definition import FusionDefinition

SIGNATURES_KEPT = 1024
ALIGNMENTS_KEPT = 64
ALIGNED_BYTES = 16
"""What kernels assume of an address at most."""

Key: TypeAlias = tuple[tuple[Signature, ...], tuple[Any, ...]]
Kind: TypeAlias = Literal["tensor", "exact", "float", "vector"]
Pairs: TypeAlias = tuple[tuple[int, int], ...]
Meeting: TypeAlias = tuple[tuple[int, int], int]  # a pair, and the bytes between its addresses
Parts: TypeAlias = tuple[Sequence[Any], tuple[Any, ...], Mapping[str, Any]]
NO_SCALARS: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True)
class Known:
    """The calls of one signature.

    Attributes
    ----------
    spans
        Bytes from the first to the last element of each tensor.
    apart
        Pairs of tensors that must not share memory, by position.
    interleaved
        Pairs that were found to share no element though they lie between each other, as columns.
    calls
        By the remainders of all addresses.
    latest
        The addresses and the call that were looked up last.
    guard
        A fast test that such tensors pass, as a rule.
    """

    signatures: tuple[Signature, ...]
    exact: tuple[Any, ...]
    spans: tuple[int, ...]
    apart: Pairs
    interleaved: set[Meeting] = field(default_factory=set[Meeting])
    calls: dict[tuple[int, ...], TorchCall] = field(
        default_factory=dict[tuple[int, ...], TorchCall]
    )
    latest: tuple[tuple[int, ...], TorchCall | None] = ((), None)
    guard: Guard = never

    def are(self, arrays: Sequence[Any], exact: tuple[Any, ...]) -> bool:
        """Return whether a call has this signature."""
        if len(arrays) != len(self.signatures) or exact != self.exact:
            return False
        if self.guard(*arrays):
            return True
        for array, (dtype, shape, strides, device) in zip(arrays, self.signatures, strict=True):
            if (
                array.dtype is not dtype
                or array.shape != shape
                or array.stride() != strides
                or array.device != device
                or array.is_neg()
            ):
                return False
        self.guard = guard_of(arrays)  # another state of torch: gradients, inference, ...
        return True

    def find(self, addresses: tuple[int, ...]) -> TorchCall | None:
        """Return the call on tensors at `addresses`; None when it has to be bound."""
        call = self.calls.get(remainders(addresses))
        if call is None or self._share_memory(addresses):
            return None
        self.latest = addresses, call
        return call

    def learn(self, addresses: Sequence[int], call: TorchCall) -> None:
        """Keep a call on tensors at `addresses`, which was checked when it was bound."""
        if len(self.calls) >= ALIGNMENTS_KEPT:
            self.calls = {}
        if len(self.interleaved) >= ALIGNMENTS_KEPT:
            self.interleaved = set()
        self.interleaved |= set(self._meeting(addresses))
        self.calls[remainders(addresses)] = call

    def _share_memory(self, addresses: Sequence[int]) -> bool:
        """Whether tensors may share memory that must not."""
        return any(met not in self.interleaved for met in self._meeting(addresses))

    def _meeting(self, addresses: Sequence[int]) -> Iterator[Meeting]:
        """Yield the pairs of `apart` whose ranges meet."""
        for pair in self.apart:
            i, j = pair
            between = addresses[j] - addresses[i]
            if -self.spans[j] < between < self.spans[i]:
                yield pair, between


def pairs_apart(inputs: int, outputs: int, written: Iterable[int]) -> Pairs:
    """Return which of the tensors must not share memory, by position.

    These are a given output and any tensor before it, and two inputs that outputs are `written`
    into.
    """
    given = ((i, j) for j in range(inputs, inputs + outputs) for i in range(j))
    return (*given, *combinations(written, 2))


def remainders(addresses: Sequence[int]) -> tuple[int, ...]:
    """Return how the addresses are aligned."""
    return tuple([address % ALIGNED_BYTES for address in addresses])


NOTHING = Known((), (), (), ())


class KnownCalls:
    """The known calls of one fusion; any number of threads may use them at once.

    Attributes
    ----------
    made, given
        The latest calls that are short (`TorchCall.is_short`), without and with a given output.
    """

    def __init__(self) -> None:
        self.made = self.given = NOTHING
        self._arguments: tuple[tuple[str, Kind], ...] = ()
        self._only_tensors = True
        self._known: dict[Key, Known] = {}
        self._latest: Known | None = None

    def run(
        self, inputs: Sequence[Any], outs: Sequence[Any] | None, stream: Any
    ) -> Sequence[Any] | None:
        """Run a call and return its outputs; None, and nothing is done, when it is not known."""
        known = self._latest
        if known is None or len(inputs) != len(self._arguments):
            return None
        parts = (inputs, (), NO_SCALARS) if self._only_tensors else self._split(inputs)
        if parts is None:
            return None
        tensors, exact, scalars = parts
        arrays = tensors if outs is None else (*tensors, *outs)
        try:
            if not known.are(arrays, exact):
                known = self._latest = self._known[key_of(arrays, exact)]
                if not known.guard(*arrays):
                    known.guard = guard_of(arrays)
            addresses = tuple([array.data_ptr() for array in arrays])
        except (KeyError, TypeError, AttributeError, RuntimeError):
            return None  # not known, or no torch tensors
        at, call = known.latest
        if addresses != at:
            call = known.find(addresses)
        if call is None:
            return None
        if call.is_short and outs is None:
            self.made = known
        elif call.is_short:
            self.given = known
        return call.run(tensors, addresses, outs, scalars, stream)

    def _split(self, inputs: Sequence[Any]) -> Parts | None:
        """Return tensors, scalars that are part of the signature, and the others by name."""
        tensors: list[Any] = []
        exact: list[Any] = []
        scalars: dict[str, Any] = {}
        for given, (name, kind) in zip(inputs, self._arguments, strict=True):
            if kind == "tensor":
                tensors.append(given)
            elif kind == "float" and type(given) is float:
                scalars[name] = given
            elif kind == "exact" and type(given) in (bool, int, float):
                exact.append(given)
            else:
                return None  # a vector, or an array that holds a scalar: what it holds may change
        return tensors, tuple(exact), scalars

    def learn(
        self,
        fd: FusionDefinition,
        inputs: Sequence[Any],
        outs: Sequence[Any] | None,
        call: TorchCall,
    ) -> None:
        """Make a call, which was bound and is one on torch tensors, a known one."""
        if not self._arguments:
            self._arguments = tuple(map(name_and_kind, fd.arguments))
            self._only_tensors = all(kind == "tensor" for _, kind in self._arguments)
        parts = self._split(inputs)
        if parts is None:
            return
        tensors, exact, _ = parts
        arrays = (*tensors, *(outs or ()))
        key = key_of(arrays, exact)
        known = self._known.get(key)
        if known is None:
            aliased = {output.alias_of for output in fd.fusion.outputs}
            names = [name for name, kind in self._arguments if kind == "tensor"]
            written = (i for i, name in enumerate(names) if name in aliased)
            apart = pairs_apart(len(tensors), len(outs or ()), written)
            known = Known(*key, tuple(map(span_bytes, arrays)), apart)
            if len(self._known) >= SIGNATURES_KEPT:
                self._known = {}
            self._known[key] = known
        known.learn([array.data_ptr() for array in arrays], call)
        self._latest = known


def key_of(arrays: Sequence[Any], exact: tuple[Any, ...]) -> Key:
    """Return the key of a call.

    Raises
    ------
    TypeError
        A tensor has no signature, or a scalar is none.
    """
    return tuple([signature_of(array) for array in arrays]), exact


def span_bytes(tensor: Any) -> int:
    """Return the bytes from the first to the last element of a torch tensor."""
    return span_elems(tensor.shape, tensor.stride()) * int(tensor.element_size())


def name_and_kind(argument: Tensor | Scalar | Vector) -> tuple[str, Kind]:
    """Return what an argument of a fusion is to a call."""
    if isinstance(argument, Tensor):
        return argument.name, "tensor"
    if isinstance(argument, Scalar):
        return argument.name, "float" if argument.value.dtype.is_float else "exact"
    return ", ".join(scalar.name for scalar in argument), "vector"
