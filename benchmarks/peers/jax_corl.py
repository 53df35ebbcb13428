"""The peer: JAX-CORL's update on noise of HalfCheetah's shapes, at its defaults but for layer
normalisation, which it has in TD3+BC's critics and IQL's value, and ours have not.

python benchmarks/peers/jax_corl.py iql --checkout .peers/jax-corl

Its own files are imported from the checkout, without the data and the simulator that they ask for.
A line of JSON, whose `value` is updates a second, the median of five repeats.
"""

import argparse
import importlib
import json
import statistics
import sys
import time
import types
from pathlib import Path

CLASS = {"iql": "IQL", "cql": "CQL", "td3bc": "TD3BC"}
OBS, ACTION, STEPS, REPEATS = 17, 6, 200_000, 5

parser = argparse.ArgumentParser()
parser.add_argument("algorithm", choices=CLASS)
parser.add_argument("--checkout", type=Path, required=True)
parser.add_argument("--updates", type=int, default=2_000)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--seeds", type=int, default=1)
given = parser.parse_args()

sys.argv = sys.argv[:1]  # its files read the command line when they are imported
sys.path.insert(0, str(given.checkout / "algos"))
for absent in ("d4rl", "gym", "wandb"):
    module = types.ModuleType(absent)
    module.Env = object
    sys.modules[absent] = module

import flax.linen  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

flax.linen.LayerNorm = lambda: lambda x: x

theirs = importlib.import_module(given.algorithm)
config = theirs.config
if given.algorithm == "cql":
    config.action_dim = ACTION
rng = np.random.default_rng(given.seed)
noise = lambda *shape: jnp.asarray(rng.standard_normal(shape, np.float32))  # noqa: E731
columns = {
    "observations": noise(STEPS, OBS), "actions": jnp.clip(noise(STEPS, ACTION), -1, 1),
    "rewards": noise(STEPS), "next_observations": noise(STEPS, OBS),
    "dones": jnp.zeros(STEPS), "dones_float": jnp.zeros(STEPS),
}  # fmt: skip
data = theirs.Transition(**{name: columns[name] for name in theirs.Transition._fields})
one = jax.tree_util.tree_map(lambda x: x[0], data)
key = jax.random.PRNGKey(given.seed)
make = getattr(theirs, f"create_{given.algorithm}_train_state")
state = make(key, one.observations, one.actions, config)
learn = getattr(theirs, CLASS[given.algorithm])().update_n_times
update, some = jax.jit(learn, static_argnums=(3,)), jax.random.split
if given.seeds > 1:  # all begin alike, and learn from other batches
    many = jax.vmap(lambda *xs: learn(*xs, config), (0, None, 0))
    update = jax.jit(lambda *xs: many(*xs[:3]), static_argnums=(3,))
    state = jax.tree_util.tree_map(lambda x: jnp.stack([x] * given.seeds), state)
    key, some = jax.random.split(key, given.seeds), jax.vmap(jax.random.split, out_axes=1)
each = config.n_jitted_updates
begun = time.perf_counter()
state, _ = update(state, data, key, config)
jax.block_until_ready(state)
compile_s, rates = time.perf_counter() - begun, []
for _ in range(REPEATS):
    rounds, begun = max(given.updates // each, 1), time.perf_counter()
    for _ in range(rounds):
        key, now = some(key)
        state, _ = update(state, data, now, config)
    jax.block_until_ready(state)
    rates.append(given.seeds * rounds * each / (time.perf_counter() - begun))
told = {"value": statistics.median(rates), "rates": rates, "compile_s": compile_s}
print(json.dumps(told | {"device": jax.devices()[0].device_kind}))
