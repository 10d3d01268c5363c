"""Closed loops: so many requests are always in flight, and each is somewhere: waiting, in prefill, or decoding.

For every number of decoding sequences the step times say how fast requests finish and how long a prompt takes; Little's
law then says how many requests that keeps in flight. The number that matches the load is found by bisection, so more
load can never mean fewer decoding sequences.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from frontier_tuner.predict import Floats
from frontier_tuner.predict.steps import StepTimes, Work

BISECTIONS = 18
FEWEST = 1e-5
"""Smallest share of the requests in flight that may be decoding."""
SHARED_PREFILL_TOKENS = 8192
"""Short prompts share a step of a prefill worker up to so many tokens."""
SMALLEST_CHUNK = 16


@dataclass(frozen=True)
class Demand:
    """What a request asks for, as (n, 1) columns.

    Attributes:
        new: Prompt tokens that need prefill.
        kept: Prompt tokens that are in the cache already.
        outputs: Output tokens after the first.
        held: Tokens in the cache of a decoding sequence, on average.
        verified: Tokens per sequence that a decode step puts through the model.
        yielded: Tokens that a decode step yields for a sequence.
        draft_layers: Layers that drafting one token costs.
        step_tokens: Most tokens of a step; 0 for no limit.
    """

    new: Floats
    kept: Floats
    outputs: Floats
    held: Floats
    verified: Floats
    yielded: Floats
    draft_layers: Floats
    step_tokens: Floats

    @property
    def steps(self) -> Floats:
        """Decode steps of a request."""
        return self.outputs / self.yielded

    def work(self, prefill: Floats, decode: Floats) -> Work:
        """Return the work of a step with so many prompt tokens and decoding sequences.

        Whoever decodes sees at least itself, even where less than one sequence decodes on average.
        """
        seen = np.where(decode > 0, np.maximum(decode, 1.0), 0.0)
        return Work(prefill, self.kept + self.new / 2, seen, self.held, self.verified)


@dataclass(frozen=True)
class State:
    """A steady state with a given number of decoding sequences, as arrays of (n, L).

    Attributes:
        in_flight: Requests that it keeps in flight, over the deployment.
        rate: Requests per second over the deployment.
        itl: Seconds between two tokens.
        ttft: Seconds to the first token.
    """

    in_flight: Floats
    rate: Floats
    itl: Floats
    ttft: Floats


def settle(state_of: Callable[[Floats], State], load: Floats, most: Floats, ranks: Floats) -> State:
    """Return the steady state with `load` requests in flight.

    Args:
        state_of: The steady state with so many decoding sequences on each rank.
        load: (n, L) requests in flight over the deployment.
        most: (n, 1) or (n, L) sequences that one rank can hold; what is beyond waits for a place.
        ranks: (n, L) ranks that have work.
    """
    high = np.minimum(load / ranks, most)
    low = high * FEWEST
    for _ in range(BISECTIONS):
        middle = np.sqrt(low * high)
        enough = state_of(middle).in_flight >= load
        high, low = np.where(enough, middle, high), np.where(enough, low, middle)
    state = state_of(high)
    waiting = np.maximum(0.0, load - state.in_flight)
    return State(load, state.rate, state.itl, state.ttft + waiting / state.rate)


def decode_seconds(times: StepTimes, demand: Demand, work: Work) -> Floats:
    """Return the time of a decode step with its drafts."""
    seconds = times.seconds(work)
    if not np.any(demand.draft_layers > 0):
        return seconds
    drafted = Work(work.prefill, work.prefill_context, work.decode, work.decode_context, np.ones_like(demand.verified))
    return seconds + (demand.verified - 1) * times.draft_seconds(drafted, demand.draft_layers)


def mixed(times: StepTimes, demand: Demand, load: Floats, ranks: Floats) -> Callable[[Floats], State]:
    """Return the steady states of workers that prefill and decode in the same steps."""
    eff, data = times.efficiencies, times.split.attention_data
    free = np.where(demand.step_tokens > 0, demand.step_tokens, np.maximum(demand.new, SHARED_PREFILL_TOKENS))
    none = np.zeros_like(load)

    def state_of(decoding: Floats) -> State:
        budget = np.maximum(free - decoding * demand.verified, SMALLEST_CHUNK)
        needed = decoding * demand.new / demand.steps  # prompt tokens per step that keep the loop going
        chunk = np.clip(needed, np.minimum(demand.new, budget), budget)
        share = needed / chunk
        busy = np.minimum(share, 1.0)
        anywhere = 1 - (1 - busy) ** data
        held_up = busy + eff.lockstep * (anywhere - busy)
        plain = decode_seconds(times, demand, demand.work(none, decoding))
        with_prompt = decode_seconds(times, demand, demand.work(chunk, decoding))
        step = plain + np.maximum(held_up, share) * (with_prompt - plain)
        rate = decoding / (demand.steps * step)
        chunks = np.ceil(demand.new / np.minimum(chunk, demand.new) - 1e-9)
        turn = demand.new / chunk * with_prompt
        queue = turn * share / (2 * np.maximum(1 - share, 1e-6)) + eff.burst * load / ranks * turn
        ttft = eff.arrival_seconds + step / 2 + chunks * with_prompt + queue
        in_flight = ranks * (decoding + rate * ttft)
        return State(np.where(share < 1, in_flight, np.inf), rate * ranks, step / demand.yielded, ttft)

    return state_of


def divided(
    times: StepTimes, prefill: StepTimes, demand: Demand, load: Floats, ranks: Floats, transfer: Floats
) -> Callable[[Floats], State]:
    """Return the steady states of a prefill pool that feeds a decode pool.

    Args:
        times: The decode pool.
        prefill: The prefill pool.
        demand: What a request asks for.
        load: (n, L) requests in flight.
        ranks: (n, L) decode ranks that have work.
        transfer: (n, 1) seconds to hand over the cache of a prompt.
    """
    eff, none = times.efficiencies, np.zeros((1, 1))
    # Long prompts come in chunks, short ones share a step.
    chunk = np.where(demand.step_tokens > 0, np.minimum(demand.new, demand.step_tokens), demand.new)
    room = np.where(demand.step_tokens > 0, demand.step_tokens, SHARED_PREFILL_TOKENS)
    together = np.maximum(1.0, room / demand.new)
    chunks = np.ceil(demand.new / chunk - 1e-9)
    alone = chunks * prefill.seconds(demand.work(demand.new / chunks, none))
    each = chunks * prefill.seconds(demand.work(demand.new / chunks * together, none)) / together
    servers = prefill.split.ranks
    most = servers * eff.prefill_utilisation / each
    idle = np.zeros_like(load)

    def state_of(decoding: Floats) -> State:
        step = decode_seconds(times, demand, demand.work(idle, decoding))
        rate = ranks * decoding / (demand.steps * step)
        share = rate / most
        # Sakasegawa's approximation of the wait for one of several servers, 1977.
        queue = share ** (np.sqrt(2 * (servers + 1)) - 1) / (2 * servers * np.maximum(1 - share, 1e-6)) * each
        ttft = eff.arrival_seconds + alone + queue + eff.burst * load / servers * each + transfer
        in_flight = ranks * decoding + rate * ttft
        return State(np.where(share < 1, in_flight, np.inf), rate, step / demand.yielded, ttft)

    return state_of
