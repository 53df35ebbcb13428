"""The peer: unifloral's update on noise of HalfCheetah's shapes, at its defaults.

python benchmarks/peers/unifloral.py iql --checkout .peers/unifloral

Its own files are imported from the checkout, without the data and the simulator that they ask for.
A line of JSON, whose `value` is updates of the critics a second, the median of five repeats.  Its
CQL has ten critics of three layers and one action a state, another size than the paper's: it is not
compared.
"""

import argparse
import importlib
import json
import statistics
import sys
import time
import types
from pathlib import Path

OBS, ACTION, STEPS, REPEATS = 17, 6, 200_000, 5

parser = argparse.ArgumentParser()
parser.add_argument("algorithm", choices=("iql", "td3_bc"))
parser.add_argument("--checkout", type=Path, required=True)
parser.add_argument("--updates", type=int, default=2_000)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--seeds", type=int, default=1)
given = parser.parse_args()

sys.argv = sys.argv[:1]  # its files read the command line when they are imported
sys.path.insert(0, str(given.checkout / "algorithms"))
for absent in ("d4rl", "gym", "wandb"):
    module = types.ModuleType(absent)
    module.Env = object
    sys.modules[absent] = module

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

theirs = importlib.import_module(given.algorithm)
args = theirs.Args()
rng = np.random.default_rng(given.seed)
noise = lambda *shape: jnp.asarray(rng.standard_normal(shape, np.float32))  # noqa: E731
columns = {
    "obs": noise(STEPS, OBS), "action": jnp.clip(noise(STEPS, ACTION), -1, 1),
    "reward": noise(STEPS), "next_obs": noise(STEPS, OBS), "done": jnp.zeros(STEPS),
    "next_action": jnp.clip(noise(STEPS, ACTION), -1, 1),
}  # fmt: skip
data = theirs.Transition(**{name: columns[name] for name in theirs.Transition._fields})
scale = data.obs.mean(0), data.obs.std(0)
obs, action = jnp.zeros(OBS), jnp.zeros(ACTION)
keys = jax.random.split(jax.random.PRNGKey(given.seed), 4)


def made(key, net, *example):
    return theirs.create_train_state(args, key, net, list(example))


if given.algorithm == "iql":
    actor, value = theirs.TanhGaussianActor(ACTION, *scale), theirs.StateValueFunction(*scale)
    critic = theirs.DualQNetwork(*scale)
    state = theirs.AgentTrainState(
        actor=made(keys[0], actor, obs), dual_q=made(keys[1], critic, obs, action),
        dual_q_target=made(keys[1], critic, obs, action), value=made(keys[2], value, obs),
    )  # fmt: skip
    step = theirs.make_train_step(args, actor.apply, critic.apply, value.apply, data)
else:
    kind = getattr(theirs, "TanhActor", None) or theirs.DeterministicTanhActor
    actor, critic = kind(ACTION, *scale), theirs.DualQNetwork(*scale)
    state = theirs.AgentTrainState(
        actor=made(keys[0], actor, obs), actor_target=made(keys[0], actor, obs),
        dual_q=made(keys[1], critic, obs, action), dual_q_target=made(keys[1], critic, obs, action),
    )  # fmt: skip
    step = theirs.make_train_step(args, actor.apply, critic.apply, data)
run = lambda carry: jax.lax.scan(step, carry, None, given.updates)  # noqa: E731
each = getattr(args, "num_critic_updates_per_step", 1)  # updates of the critics in a step
carry = keys[3], state
if given.seeds > 1:  # all begin alike, and learn from other batches
    alike = lambda x: jnp.stack([x] * given.seeds)  # noqa: E731
    carry = jax.random.split(keys[3], given.seeds), jax.tree.map(alike, state)
    run = jax.vmap(run)
run, begun = jax.jit(run), time.perf_counter()
ready = run.lower(carry).compile()
compile_s, rates = time.perf_counter() - begun, []
for _ in range(REPEATS):
    begun = time.perf_counter()
    carry, _ = ready(carry)
    jax.block_until_ready(carry)
    rates.append(given.seeds * given.updates * each / (time.perf_counter() - begun))
told = {"value": statistics.median(rates), "rates": rates, "compile_s": compile_s}
print(json.dumps(told | {"device": jax.devices()[0].device_kind}))
