"""What an executor does with chunks of actions, tick by tick, in float64 numpy: meant to be read.

Sources:
- Temporal ensembling: ACT, Zhao et al. 2023, arXiv:2304.13705 (section IV.B).
- Real-time chunking: Black et al. 2025, arXiv:2506.07339 (eq. 2 to 5).

Shapes: T ticks, H actions a chunk, A numbers an action. `plan(tick, obs)` makes a chunk [H, A] from
the observation of a tick; its first action is for that tick. `obs` [T, ...].
"""

import math

import numpy as np


def _planned(plan, tick, obs):
    chunk = np.asarray(plan(tick, obs[tick]), dtype=np.float64)
    assert chunk.ndim == 2, chunk.shape
    return chunk


def receding(plan, obs, execute):
    """[T, A]: a chunk every `execute` ticks, of which the first `execute` actions are played."""
    actions, chunk = [], None
    for tick in range(len(obs)):
        if tick % execute == 0:
            chunk = _planned(plan, tick, obs)
            assert execute <= len(chunk), (execute, len(chunk))
        actions.append(chunk[tick % execute])
    return np.stack(actions)


def ensembled(plan, obs, decay):
    """[T, A]: a chunk every tick, and the weighted mean of what all chunks so far say of the tick.

    The oldest chunk that reaches it weighs exp(0), the next exp(-decay), and so on to the newest:
    the weights of the first ticks, of which fewer chunks speak, begin with 1 too.
    """
    actions, chunks = [], []
    for tick in range(len(obs)):
        chunks.append(_planned(plan, tick, obs))
        total, weights = np.zeros(chunks[0].shape[1]), 0.0
        oldest = max(0, tick - len(chunks[0]) + 1)
        for age, made in enumerate(range(oldest, tick + 1)):
            weight = math.exp(-decay * age)
            total += weight * chunks[made][tick - made]
            weights += weight
        actions.append(total / weights)
    return np.stack(actions)


def delayed(plan, obs, execute, delays):
    """(actions [T, A], requests): chunks that arrive late, while the robot goes on.

    - The j-th request, at tick r of that tick's observation, arrives at tick r + delays[j];
      delays[0] counts as 0. `requests` lists (request tick, arrival tick), those too that arrive
      after the last tick.
    - The chunk that arrived last plays, from that tick on, by its own index (tick - r): what it has
      for earlier ticks is skipped. Used up, its last action is held.
    - The next request is at r + execute, or when the chunk requested at r arrives if that is later:
      one request is under way at a time, and a chunk is asked for in the tick another arrives.
    """
    assert execute >= 1, execute
    actions, requests = [], []
    playing = coming = None  # (chunk, request tick), and (chunk, request tick, arrival tick)
    for tick in range(len(obs)):
        if coming is not None and coming[2] == tick:
            playing, coming = coming[:2], None
        if coming is None and (not requests or tick >= requests[-1][0] + execute):
            delay = int(delays[len(requests)]) if requests else 0
            assert delay >= 0, delay
            coming = (_planned(plan, tick, obs), tick, tick + delay)
            requests.append(coming[1:])
            if delay == 0:
                playing, coming = coming[:2], None
        assert playing is not None  # the first plan is there at once
        chunk, asked = playing
        actions.append(chunk[min(tick - asked, len(chunk) - 1)])
    return np.stack(actions), requests


def rtc_weights(horizon, delay, execute):
    """[H]: how much action i of the new chunk is held to the one of the old that is for its tick.

    1 for the `delay` that play before the new chunk arrives, 0 for the last `execute`, of which the
    old chunk says nothing, and between them a falling curve.
    """
    assert 0 <= delay <= horizon - execute, (horizon, delay, execute)
    out = np.zeros(horizon)
    for i in range(horizon):
        if i < delay:
            out[i] = 1.0
        elif i < horizon - execute:
            c = (horizon - execute - i) / (horizon - execute - delay + 1)
            out[i] = c * (math.exp(c) - 1.0) / (math.e - 1.0)
    return out


def rtc_guidance(t, beta=10.0):
    """The weight of the guidance at time t, data_at_one: beta at t = 0, and near t = 1 too."""
    if t <= 0.0 or t >= 1.0:
        return beta
    r2 = (1.0 - t) ** 2 / (t**2 + (1.0 - t) ** 2)
    return min(beta, (1.0 - t) / t / r2)
