"""The peer: FQL's authors' update on noise of HalfCheetah's shapes, at its defaults.

python benchmarks/peers/fql.py fql --checkout .peers/fql

Its own files are imported from the checkout.  Its update is called from Python, a batch at a time,
as its main.py does; batches are drawn on the device beforehand, which favours it.  A line of JSON,
whose `value` is updates of the critics a second, the median of five repeats.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

OBS, ACTION, STEPS, BATCH, REPEATS = 17, 6, 200_000, 256, 5

parser = argparse.ArgumentParser()
parser.add_argument("algorithm", choices=("fql",))
parser.add_argument("--checkout", type=Path, required=True)
parser.add_argument("--updates", type=int, default=2_000)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--seeds", type=int, choices=(1,), default=1)
given = parser.parse_args()
sys.path.insert(0, str(given.checkout))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from agents.fql import FQLAgent, get_config  # noqa: E402

rng = np.random.default_rng(given.seed)
noise = lambda *shape: jnp.asarray(rng.standard_normal(shape, np.float32))  # noqa: E731
data = {
    "observations": noise(STEPS, OBS), "actions": jnp.clip(noise(STEPS, ACTION), -1, 1),
    "rewards": noise(STEPS), "next_observations": noise(STEPS, OBS), "masks": jnp.ones(STEPS),
}  # fmt: skip
agent = FQLAgent.create(given.seed, data["observations"][:1], data["actions"][:1], get_config())


@jax.jit
def drawn(key: jax.Array) -> list[dict[str, jax.Array]]:
    """Some batches."""
    rows = jax.random.randint(key, (64, BATCH), 0, STEPS)
    return [jax.tree.map(lambda x, i=i: x[rows[i]], data) for i in range(64)]


begun = time.perf_counter()
batches = jax.block_until_ready(drawn(jax.random.PRNGKey(given.seed)))
agent, _ = jax.block_until_ready(agent.update(batches[0]))
agent, _ = jax.block_until_ready(agent.update(batches[1]))
compile_s, rates = time.perf_counter() - begun, []
for _ in range(REPEATS):
    begun = time.perf_counter()
    for i in range(given.updates):
        agent, _ = agent.update(batches[i % 64])
    jax.block_until_ready(agent)
    rates.append(given.updates / (time.perf_counter() - begun))
told = {"value": statistics.median(rates), "rates": rates, "compile_s": compile_s}
print(json.dumps(told | {"device": jax.devices()[0].device_kind}))
