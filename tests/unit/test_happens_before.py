"""What comes before what in every run, by hand: conflicts that may have another order are told."""

from __future__ import annotations

import pytest

from fuser.protocol.happens_before import NOBODY, Bits, Clocks, Order, Unordered

FULL, EMPTY = 0, 1
STAGE = 0
BLOCK = 7
"""Where agents meet."""
PRODUCER, CONSUMER, OTHER = range(3)


def begun() -> Clocks:
    """Return the clocks of three agents for which two barriers have been initialised."""
    clocks = fresh()
    for barrier in (FULL, EMPTY):
        clocks.init(PRODUCER, barrier)
        clocks.fence(PRODUCER, barrier)
    clocks.meet((PRODUCER, CONSUMER, OTHER), BLOCK)
    return clocks


def fresh() -> Clocks:
    return Clocks(Bits(), Order((0,) * 3, (NOBODY,) * 2, (NOBODY,) * 2))


def arrive(clocks: Clocks, agent: int, barrier: int, *known: tuple[str, int]) -> None:
    """Let an arrival of an agent count that also knows what ends with it."""
    unknown = clocks.agents[agent]
    for what, cell in known:
        unknown &= ~clocks.bits.bit(what, cell, agent)
    clocks.arrive(unknown, barrier, clocks.bits.bit("arrive", barrier, agent))


def load(clocks: Clocks) -> None:
    """Let the producer fill the stage, and the copy land with the end of a phase."""
    clocks.fill(PRODUCER, STAGE, landed=False)
    unknown = clocks.agents[PRODUCER] & ~clocks.bits.bit("land", STAGE)
    clocks.arrive(unknown, FULL, clocks.bits.bit("copy", FULL))
    clocks.end_phase(FULL)


def release(clocks: Clocks) -> None:
    """Let the consumer read the stage and give it back."""
    clocks.wait(CONSUMER, FULL)
    clocks.read(CONSUMER, STAGE)
    arrive(clocks, CONSUMER, EMPTY, ("read", STAGE))
    clocks.end_phase(EMPTY)


def test_a_ring_of_one_stage_has_one_order() -> None:
    clocks = begun()
    for _ in range(4):
        load(clocks)
        release(clocks)
        clocks.wait(PRODUCER, EMPTY)
    clocks.learn(CONSUMER, clocks.bits.but_for("read", CONSUMER, ()))
    clocks.meet((PRODUCER, CONSUMER, OTHER), BLOCK)
    for barrier in (FULL, EMPTY):
        clocks.inval(OTHER, barrier)


def test_a_stage_is_read_behind_the_wait_for_it() -> None:
    clocks = begun()
    load(clocks)
    with pytest.raises(Unordered):
        clocks.read(CONSUMER, STAGE)
    clocks.wait(CONSUMER, FULL)
    clocks.read(CONSUMER, STAGE)
    with pytest.raises(Unordered):
        clocks.read_by_engine(OTHER, STAGE, "store")


def test_a_stage_is_filled_behind_its_release() -> None:
    clocks = begun()
    load(clocks)
    release(clocks)
    with pytest.raises(Unordered):
        load(clocks)
    clocks.wait(PRODUCER, EMPTY)
    load(clocks)


def test_an_arrival_that_does_not_end_a_read_says_nothing_of_it() -> None:
    clocks = begun()
    load(clocks)
    clocks.wait(CONSUMER, FULL)
    clocks.read(CONSUMER, STAGE)
    arrive(clocks, CONSUMER, EMPTY)
    clocks.end_phase(EMPTY)
    clocks.wait(PRODUCER, EMPTY)
    with pytest.raises(Unordered):
        clocks.fill(PRODUCER, STAGE, landed=False)


def test_a_copy_in_flight_is_not_known_to_have_landed() -> None:
    clocks = begun()
    clocks.fill(PRODUCER, STAGE, landed=False)
    with pytest.raises(Unordered):
        clocks.fill(PRODUCER, STAGE, landed=True)


def test_an_arrival_is_of_this_phase_when_it_knows_the_end_of_the_one_before() -> None:
    clocks = begun()
    arrive(clocks, PRODUCER, FULL)
    clocks.end_phase(FULL)
    with pytest.raises(Unordered):
        arrive(clocks, PRODUCER, FULL)
    clocks.wait(PRODUCER, FULL)
    arrive(clocks, PRODUCER, FULL)


def test_a_phase_does_not_end_before_the_one_before_has_been_seen() -> None:
    clocks = begun()
    arrive(clocks, PRODUCER, FULL)
    clocks.end_phase(FULL)
    clocks.wait(PRODUCER, FULL)
    clocks.wait(CONSUMER, FULL)
    arrive(clocks, PRODUCER, FULL)
    with pytest.raises(Unordered):
        clocks.end_phase(FULL)
    arrive(clocks, CONSUMER, FULL)
    clocks.end_phase(FULL)


def test_a_wait_cannot_be_over_by_a_phase_before() -> None:
    """Its parity is also that of two phases ago, of which the agent knows nothing."""
    clocks = begun()
    for _ in range(2):
        arrive(clocks, PRODUCER, FULL)
        clocks.end_phase(FULL)
        clocks.wait(PRODUCER, FULL)
    with pytest.raises(Unordered):
        clocks.wait(CONSUMER, FULL)
    with pytest.raises(Unordered):
        clocks.observe(CONSUMER, FULL, "end")


def test_barriers_are_used_behind_their_initialisation() -> None:
    clocks = fresh()
    clocks.init(PRODUCER, FULL)
    with pytest.raises(Unordered):
        clocks.wait(CONSUMER, FULL)
    with pytest.raises(Unordered):
        clocks.fence(CONSUMER, FULL)
    with pytest.raises(Unordered):
        arrive(clocks, CONSUMER, FULL)


@pytest.mark.parametrize("agent", [PRODUCER, CONSUMER])
def test_barriers_are_given_back_behind_all_uses(agent: int) -> None:
    clocks = begun()
    load(clocks)
    clocks.wait(CONSUMER, FULL)
    if agent == PRODUCER:  # knows neither the end of the phase nor that it has been seen
        with pytest.raises(Unordered):
            clocks.inval(agent, FULL)
        return
    clocks.inval(agent, FULL)
    with pytest.raises(Unordered):
        clocks.init(PRODUCER, FULL)
    clocks.init(CONSUMER, FULL)


def test_others_that_meet_at_a_barrier_know_of_the_meeting_before() -> None:
    clocks = begun()
    named = 8
    clocks.meet((PRODUCER, CONSUMER), named)
    with pytest.raises(Unordered):
        clocks.meet((CONSUMER, OTHER), named)
    clocks.meet((PRODUCER, CONSUMER, OTHER), BLOCK)
    clocks.meet((CONSUMER, OTHER), named)


def test_what_was_arrived_at_counts_when_threads_meet() -> None:
    clocks = begun()
    arrive(clocks, PRODUCER, EMPTY)
    arrive(clocks, OTHER, EMPTY)
    clocks.end_phase(EMPTY)
    clocks.meet((PRODUCER, CONSUMER), 8)
    with pytest.raises(Unordered):
        clocks.inval(CONSUMER, EMPTY)  # of the other's arrival they know nothing
    clocks.meet((CONSUMER, OTHER), 9)
    clocks.inval(CONSUMER, EMPTY)


def test_a_copy_has_not_landed_when_threads_meet() -> None:
    clocks = begun()
    load(clocks)
    clocks.meet((PRODUCER, CONSUMER, OTHER), BLOCK)
    with pytest.raises(Unordered):
        clocks.read(CONSUMER, STAGE)
    with pytest.raises(Unordered):
        clocks.inval(CONSUMER, FULL)


@pytest.mark.parametrize("what", ["read", "store"])
def test_what_threads_wrote_has_been_shown_to_who_reads_it(what: str) -> None:
    clocks = begun()
    clocks.fill(PRODUCER, STAGE, landed=True)
    clocks.meet((PRODUCER, CONSUMER), 8)
    clocks.happen(clocks.bits.bit("show", STAGE, PRODUCER), (PRODUCER,))
    with pytest.raises(Unordered):
        clocks.read_by_engine(CONSUMER, STAGE, what)
    clocks.meet((PRODUCER, CONSUMER), 8)
    clocks.read_by_engine(CONSUMER, STAGE, what)
    with pytest.raises(Unordered):
        clocks.fill(PRODUCER, STAGE, landed=True)


def test_two_agents_store_one_stage_one_after_the_other() -> None:
    clocks = begun()
    clocks.fill(PRODUCER, STAGE, landed=True)
    clocks.meet((PRODUCER, CONSUMER), 8)
    clocks.read_by_engine(PRODUCER, STAGE, "store")
    with pytest.raises(Unordered):
        clocks.read_by_engine(CONSUMER, STAGE, "store")
    clocks.learn(PRODUCER, clocks.bits.but_for("store", PRODUCER, ()))
    clocks.meet((PRODUCER, CONSUMER), 8)
    clocks.read_by_engine(CONSUMER, STAGE, "store")


def test_reads_that_go_on_are_not_over() -> None:
    bits = Bits()
    ends = [bits.bit("read", cell, CONSUMER) for cell in range(3)]
    assert bits.but_for("read", CONSUMER, (1,)) == ends[0] | ends[2]
    assert bits.but_for("read", PRODUCER, ()) == 0
    assert bits.others("read", 1, PRODUCER) == ends[1]
    assert bits.others("read", 1, CONSUMER) == 0
