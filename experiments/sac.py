"""SAC from scratch on one task: seeds side by side, every phase one compiled program.

python -m experiments.sac --env HalfCheetah-v5 --steps 1000000 --seeds 3

Any agent with its methods learns in this loop: td3.py, crossq.py and simbav2.py say with what.
"""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import tyro

import envs
from agents.sac import SAC
from envs.simulation import Simulation
from experiments import cli, play, prior
from experiments.deploy import Deployer
from rl import buffer, health, memory, norm, record, rollout
from rl.env import Env
from rl.policy import Policy, uniform
from rl.saver import Saver, Stop
from rl.types import Array, Key, Metrics, PyTree, Transition

PHASE = 1_000  # vector steps between two looks of the host, about


@dataclass(frozen=True)
class Args:
    env: Any = field(default_factory=lambda: envs.make_task("HalfCheetah-v5"))  # --env NAME
    env_name: tyro.conf.Suppress[str] = "HalfCheetah-v5"
    steps: int = 1_000_000  # environment steps per seed, rounded up to whole phases
    seed: int = 0  # of the first run
    seeds: int = 1  # independent runs, trained side by side
    num_envs: int = 1  # worlds per seed
    updates_per_step: int = 1  # critic steps for each step of all worlds; over num_envs: the UTD
    batch_size: int = 256
    n_step: int = 1  # rewards in a target
    learning_starts: int = 10_000  # environment steps of random actions before that
    buffer_size: int = 1_000_000  # environment steps
    demos: Path | None = None  # of experiments.make_data: half of every batch comes from them
    hindsight: float = 0.0  # share of what is replayed with a goal that was reached later
    return_bound: float = 0.0  # of returns that vary by 1, in units of which rewards are; 0: as is
    physics: Literal["auto", "native", "mjx"] = "auto"  # auto: native on CPU, else mjx
    threads: int = 0  # for physics and XLA alike; 0: all this process has
    evals: int = 20  # times that the policy is judged while it trains
    eval_episodes: int = 10
    save_s: float = 30.0  # s between checkpoints, at least
    when_full: Literal["go-on", "stop"] = "go-on"  # the disk: with no new checkpoint, or not at all
    track: str = ""  # also watch it with trackio:PROJECT or wandb:PROJECT
    video: bool = True  # film an episode
    out: Path = Path("runs/sac")  # directory of the run; -2, -3, ... if there is one already
    resume: Path | None = None  # a run to go on with, or one of its checkpoints/STEP
    agent: Any = SAC()


class Run(NamedTuple):
    """All that training carries."""

    agent: PyTree  # its state
    worlds: rollout.Worlds
    replay: buffer.Buffer
    returns: norm.Returns
    key: Key  # of the training to come
    tick: Array  # [] int32


def explorer(args: Args, env: Env) -> Policy:
    return args.agent.policy(explore=True, action_dim=env.action_dim)


def begin(args: Args, env: Env, key: Key) -> tuple[Run, Transition]:
    """Fresh worlds, and what random actions have seen of them [K, N, ...]."""
    agent_key, worlds_key, act_key, key = jax.random.split(key, 4)
    obs = jax.tree.map(jnp.zeros_like, env.reset(key).obs)
    agent = args.agent.init(agent_key, obs, jnp.zeros(env.action_dim))
    policy, params = explorer(args, env), args.agent.deploy(agent)
    policy = policy._replace(step=uniform(env.action_dim).step)  # it carries what it will need
    context = args.env.beginner()
    worlds = rollout.start(env, policy, params, worlds_key, args.num_envs, context)
    worlds, seen, _ = rollout.collect(env, policy, params, worlds, act_key, first_rows(args))
    replay = buffer.init(args.buffer_size // args.num_envs, jax.tree.map(lambda x: x[0], seen))
    agent = args.agent.observe(agent, seen)
    returns = norm.earn(norm.returns(args.num_envs), seen, args.agent.gamma)
    return Run(agent, worlds, buffer.add(replay, seen), returns, key, jnp.int32(0)), seen


def tick(args: Args, env: Env, run: Run, demos: prior.Demos = ()) -> tuple[Run, Any]:
    """A few steps of all worlds, and as many of learning as they are worth."""
    act_key, sample_key, learn_key = jax.random.split(jax.random.fold_in(run.key, run.tick), 3)
    steps, updates = pace(args)
    policy, params = explorer(args, env), args.agent.deploy(run.agent)
    worlds, seen, ends = rollout.collect(env, policy, params, run.worlds, act_key, steps)
    replay, agent = buffer.add(run.replay, seen), args.agent.observe(run.agent, seen)
    returns = norm.earn(run.returns, seen, args.agent.gamma)
    shape = updates, args.agent.delay, args.batch_size
    count, replays = math.prod(shape), (replay, *demos)
    batch = prior.batch(env, replays, sample_key, count, args.n_step, args.hindsight)
    if args.return_bound:
        batch = batch._replace(reward=batch.reward / norm.unit(returns, args.return_bound))
    batch = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), batch)

    def update(agent: PyTree, now: tuple[Transition, Key]) -> tuple[PyTree, Metrics]:
        return args.agent.update(agent, *now)

    agent, metrics = jax.lax.scan(update, agent, (batch, jax.random.split(learn_key, updates)))
    run = Run(agent, worlds, replay, returns, run.key, run.tick + 1)
    return run, (metrics, ends, seen)


def pace(args: Args) -> tuple[int, int]:
    """Vector steps and updates in a tick: the fewest that let the actor learn a whole time."""
    steps = args.agent.delay // math.gcd(args.agent.delay, args.updates_per_step)
    return steps, steps * args.updates_per_step // args.agent.delay


def phase(
    args: Args, env: Env, run: Run, demos: prior.Demos = ()
) -> tuple[Run, Metrics, Transition]:
    """As many ticks as the host leaves alone, and the rows [K, N, ...] they added."""

    def step(run: Run, _: None) -> tuple[Run, Any]:
        return tick(args, env, run, demos)

    run, (metrics, ends, seen) = jax.lax.scan(step, run, length=plan(args)[1])
    seen = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), seen)
    metrics = jax.tree.map(jnp.mean, metrics)
    unit = norm.unit(run.returns, args.return_bound) if args.return_bound else 1.0
    share = jnp.abs(metrics["q"]) * unit / jnp.maximum(run.returns.largest, unit)
    return run, metrics | {"q_over_return": share} | ends.means(), seen


def plan(args: Args) -> tuple[int, int]:
    """Phases, and ticks in each: short enough for so many evaluations."""
    total = -(-max(args.steps - args.learning_starts, 1) // (args.num_envs * pace(args)[0]))
    phases = max(-(-total * pace(args)[0] // PHASE), min(args.evals, total))
    each = -(-total // phases)
    return -(-total // each), each


def main(args: Args) -> None:
    cli.use_threads(args.threads)
    env = envs.simulate(args.env, args.physics, threads=args.threads)
    demos, about = prior.demonstrations(env, args)

    def train(part: Args) -> None:
        with cli.record_of(part, env) as log:
            log.update(**about)
            learn(part, env, log, demos)
            play.conclude(log, part.eval_episodes, part.video)

    cli.in_turn(check(args, env), train)


def learn(args: Args, env: Simulation, log: record.Record, demos: prior.Demos = ()) -> None:
    """The host's side: look in after each phase, until it is done, stopped or broken."""
    saver, (phases, each) = Saver(log, args.save_s), plan(args)
    deployer = Deployer(env, args.agent.policy(False, env.action_dim), args.env_name)
    log.update(utd=args.updates_per_step / args.num_envs)
    world = prior.world(env, args)
    fresh = jax.jit(cli.over_seeds(lambda key: begin(args, world, key)))
    keys = jax.vmap(jax.random.key)(jnp.array(log.manifest["seeds"]))  # the same alone, in company
    run = args.resume and saver.restore(jax.eval_shape(fresh, keys)[0], cli.step_of(args.resume))
    if run is None:
        run, seen = fresh(keys)
        saver.see(seen)
    log.save(jax.device_get(args.agent.deploy(run.agent)))
    train = cli.over_seeds(lambda run: phase(args, world, run, demos))
    train = jax.jit(train, donate_argnums=0).lower(run).compile()
    mode, deploy = args.agent.policy(False, env.action_dim), args.agent.deploy
    judge = cli.over_seeds(lambda x: play.judged(env, mode, deploy(x), args.eval_episodes))
    judge = args.evals and jax.jit(judge).lower(run.agent).compile()
    log.spent("compile")
    with Stop() as stop:
        while (done := int(run.tick[0]) // each + 1) <= phases and not stop.asked:
            run, metrics, seen = train(run)
            metrics, step = jax.device_get(metrics), steps_after(args, done * each)
            log.log(step, metrics | {"updates": updates_after(args, done * each)})
            params = jax.device_get(args.agent.deploy(run.agent))
            if what := health.trouble(metrics, params):
                stop.asked = f"failed: {what} by step {step:,}"
                health.diagnose(log, step, what, metrics, run.agent)
                break
            log.save(params)
            saver.see(seen)
            log.spent("train")
            if judge and done * args.evals // phases > (done - 1) * args.evals // phases:
                judged = jax.device_get(judge(run.agent))
                log.evaluated(step, *play.told(judged))
                log.spent("evaluate")
            if saver.due or stop.asked or done == phases:
                saver.save(step, run)
                deployer.write(log, params, run.worlds)
                log.spent("save")
    log.update(status=stop.asked or "done")


def steps_after(args: Args, ticks: int) -> int:
    """Environment steps of a seed."""
    return (first_rows(args) + ticks * pace(args)[0]) * args.num_envs


def updates_after(args: Args, ticks: int) -> int:
    """Critic steps of a seed."""
    return ticks * pace(args)[1] * args.agent.delay


def first_rows(args: Args) -> int:
    """Steps of every world before learning starts; a window of them must fill a target."""
    return max(-(-args.learning_starts // args.num_envs), args.n_step)


def check(args: Args, env: Simulation) -> list[Args]:
    """Refuse what makes no sense, before anything is made; seeds in groups that fit in memory."""
    cli.at_least(1, args, "steps", "seeds", "num_envs", "updates_per_step", "batch_size")
    cli.at_least(1, args, "n_step", "buffer_size", "eval_episodes")
    cli.at_least(0, args, "learning_starts", "evals", "save_s")
    if not 0 <= args.return_bound < math.inf:
        raise ValueError(f"--return-bound is {args.return_bound}; it takes a number above 0, or 0.")
    if args.n_step > env.horizon:
        raise ValueError(
            f"--n-step is {args.n_step}; an episode of {args.env_name} has {env.horizon} steps."
        )
    rows, first = args.buffer_size // args.num_envs, first_rows(args)
    if rows < first:
        raise ValueError(
            f"--buffer-size is {args.buffer_size:,}; it must hold the {first * args.num_envs:,} "
            "steps before learning starts."
        )
    if args.steps <= first * args.num_envs:
        raise ValueError(
            f"--steps is {args.steps:,}; learning starts after {first * args.num_envs:,}: "
            "lower --learning-starts, or --n-step or --num-envs where they need more."
        )
    least, world = replace(args, buffer_size=first * args.num_envs), prior.world(env, args)
    _, seen = jax.eval_shape(lambda key: begin(least, world, key), jax.random.key(0))
    read = pace(args)[1] * args.agent.delay * args.batch_size * args.n_step  # in a tick
    return cli.groups(
        args,
        2 * (rows + read // args.num_envs) * memory.size(seen) // first,  # and copies
        f"a replay of {args.buffer_size:,} steps, of which {read:,} are read at a time,",
        "lower --buffer-size" if rows * args.num_envs > read else "lower --batch-size or --n-step",
    )


if __name__ == "__main__":
    cli.run(main, Args)
