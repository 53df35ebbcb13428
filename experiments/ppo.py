"""PPO from scratch on one task: seeds side by side, every phase one compiled program.

python -m experiments.ppo --env HalfCheetah-v5 --steps 1000000 --seeds 3
"""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import tyro

import envs
from agents.ppo import PPO, State
from envs.simulation import Simulation
from experiments import cli, play
from experiments.deploy import Deployer
from rl import health, memory, record, rollout
from rl.env import Env
from rl.saver import Saver, Stop
from rl.types import Array, Key, Metrics, Params

PHASES = 100  # times the host looks in, about: to log, to save, to notice trouble
MOST_PER_PHASE = 32  # iterations


@dataclass(frozen=True)
class Args:
    env: Any = field(default_factory=lambda: envs.make_task("HalfCheetah-v5"))  # --env NAME
    env_name: tyro.conf.Suppress[str] = "HalfCheetah-v5"
    steps: int = 1_000_000  # environment steps per seed, rounded up to whole phases
    seed: int = 0  # of the first run
    seeds: int = 1  # independent runs, trained side by side
    num_envs: int = 64  # worlds per seed
    unroll: int = 64  # steps of each world per iteration
    physics: Literal["auto", "native", "mjx"] = "auto"  # auto: native on CPU, else mjx
    threads: int = 0  # for physics and XLA alike; 0: all this process has
    start_from: Path | None = None  # a run on a like task, whose mean every seed begins with
    mirror: bool = False  # left and right are alike, if they are to the task
    stagger: bool = False  # worlds begin anywhere in their time: no batch is of one age alone
    anneal: bool = True  # the learning rate falls to zero, unless agent.target_kl steers it
    evals: int = 0  # times that the policy is judged while it trains
    eval_episodes: int = 32
    save_s: float = 30.0  # s between checkpoints, at least
    when_full: Literal["go-on", "stop"] = "go-on"  # the disk: with no new checkpoint, or not at all
    track: str = ""  # also watch it with trackio:PROJECT or wandb:PROJECT
    video: bool = True  # film an episode
    out: Path = Path("runs/ppo")  # directory of the run; -2, -3, ... if there is one already
    resume: Path | None = None  # a run to go on with, or one of its checkpoints/STEP
    agent: PPO = PPO()


class Run(NamedTuple):
    """All that training carries."""

    agent: State
    worlds: rollout.Worlds
    key: Key  # of the training to come
    iteration: Array  # [] int32


def begin(args: Args, env: Env, key: Key) -> Run:
    agent_key, worlds_key, key = jax.random.split(key, 3)
    obs = jax.tree.map(jnp.zeros_like, env.reset(key).obs)
    agent = args.agent.init(agent_key, obs, jnp.zeros(env.action_dim))
    policy, params = args.agent.policy(True, env.action_dim), args.agent.deploy(agent)
    context = args.env.beginner()
    worlds = rollout.start(env, policy, params, worlds_key, args.num_envs, context)
    if args.stagger:
        worlds = rollout.staggered(env, worlds, worlds_key)
    return Run(agent, worlds, key, jnp.int32(0))


def iterate(args: Args, env: Env, run: Run) -> tuple[Run, tuple[Metrics, rollout.Episodes]]:
    """Collect a batch with the present policy and learn from it."""
    act_key, learn_key = jax.random.split(jax.random.fold_in(run.key, run.iteration))
    agent = run.agent
    if args.anneal and not args.agent.target_kl:
        agent = agent._replace(lr=args.agent.lr * (1 - run.iteration / math.prod(plan(args))))
    policy, params = args.agent.policy(True, env.action_dim), args.agent.deploy(agent)
    worlds, batch, episodes = rollout.collect(env, policy, params, run.worlds, act_key, args.unroll)
    agent, metrics = args.agent.update(agent, batch, learn_key)
    return Run(agent, worlds, run.key, run.iteration + 1), (metrics, episodes)


def phase(args: Args, env: Env, run: Run) -> tuple[Run, Metrics]:
    """As many iterations as the host leaves alone."""
    step = lambda run, _: iterate(args, env, run)  # noqa: E731
    run, (metrics, episodes) = jax.lax.scan(step, run, length=plan(args)[1])
    return run, jax.tree.map(jnp.mean, metrics) | episodes.means()


def plan(args: Args) -> tuple[int, int]:
    """Phases, and iterations in each: few enough that Ctrl-C is heard in seconds."""
    total = -(-args.steps // (args.num_envs * args.unroll))
    each = min(-(-total // PHASES), MOST_PER_PHASE)
    return -(-total // each), each


def main(args: Args) -> None:
    cli.use_threads(args.threads)
    env = envs.simulate(args.env, args.physics, threads=args.threads)
    actor = actor_of(args, env)

    def train(part: Args) -> None:
        with cli.record_of(part, env) as log:
            learn(part, env, actor, log)
            play.conclude(log, part.eval_episodes, part.video)

    cli.in_turn(check(args, env), train)


def actor_of(args: Args, env: Simulation) -> Params | None:
    """The actor of --start-from and its normaliser; ValueError if this task needs another."""
    if args.start_from is None or cli.goes_on(args):
        return None
    theirs, _, params = play.load(args.start_from)
    fresh = lambda key: args.agent.deploy(begin(args, env, key).agent)  # noqa: E731
    shapes = jax.eval_shape(fresh, jax.random.key(0)), jax.eval_shape(lambda: params)
    wanted, found = (jax.tree.map(lambda x: x.shape, one) for one in shapes)
    if wanted != found:
        sees = [one["obs"].mean[-1] if "obs" in one else "none" for one in (wanted, found)]
        why = "its layers or actions are others" if sees[0] == sees[1] else (
            f"{args.env_name} shows {sees[0]} numbers, and it sees {sees[1]}"
        )  # fmt: skip
        raise ValueError(
            f"--start-from {args.start_from} has another network than is asked for: {why}. Give a "
            "run of PPO with the same observations and actions, and the same --agent.hidden."
        )
    cli.same_actions(f"--start-from {args.start_from}", theirs, env)
    return params


def learn(args: Args, env: Simulation, actor: Params | None, log: record.Record) -> None:
    """The host's side: look in after each phase, until it is done, stopped or broken."""
    if args.mirror:
        args = replace(args, agent=replace(args.agent, mirror=args.env.mirror))
    saver, (phases, each) = Saver(log, args.save_s), plan(args)
    deployer = Deployer(env, args.agent.policy(False, env.action_dim), args.env_name)
    keys = jax.vmap(jax.random.key)(jnp.array(log.manifest["seeds"]))  # the same alone, in company

    def first(key: Key) -> Run:
        run = begin(args, env, key)
        return run._replace(agent=args.agent.warm(run.agent, actor)) if actor else run

    fresh = jax.jit(cli.over_seeds(first))
    run = args.resume and saver.restore(jax.eval_shape(fresh, keys), cli.step_of(args.resume))
    run = fresh(keys) if run is None else run
    log.save(jax.device_get(args.agent.deploy(run.agent)))
    train = cli.over_seeds(lambda run: phase(args, env, run))
    train = jax.jit(train, donate_argnums=0).lower(run).compile()
    mode, deploy = args.agent.policy(False, env.action_dim), args.agent.deploy
    judge = cli.over_seeds(lambda x: play.judged(env, mode, deploy(x), args.eval_episodes))
    judge = args.evals and jax.jit(judge).lower(run.agent).compile()
    log.spent("compile")
    with Stop() as stop:
        while (done := int(run.iteration[0]) // each + 1) <= phases and not stop.asked:
            run, metrics = train(run)
            metrics, step = jax.device_get(metrics), done * each * args.num_envs * args.unroll
            log.log(step, metrics)
            params = jax.device_get(args.agent.deploy(run.agent))
            if what := health.trouble(metrics, params):
                stop.asked = f"failed: {what} by step {step:,}"
                health.diagnose(log, step, what, metrics, run.agent)
                break
            log.save(params)
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


def check(args: Args, env: Env) -> list[Args]:
    """Refuse what makes no sense, before anything is made; seeds in groups that fit in memory."""
    if args.mirror and args.env.mirror is None:
        raise ValueError(
            f"--mirror needs a task that is its own mirror image; {args.env_name} is none: "
            "give --no-mirror."
        )
    cli.at_least(1, args, "steps", "seeds", "num_envs", "unroll", "eval_episodes")
    cli.at_least(0, args, "evals", "save_s")

    def once(key: Key) -> Any:
        run = begin(args, env, key)
        policy, params = args.agent.policy(True, env.action_dim), args.agent.deploy(run.agent)
        return run, rollout.collect(env, policy, params, run.worlds, key, args.unroll)[1]

    key = jax.random.key(0)
    run, seen = jax.eval_shape(once, key)
    parts = cli.groups(
        args,
        4 * memory.size(run, seen),  # the batch, its samples, both shuffled
        f"{args.num_envs:,} worlds x {args.unroll} steps",
        "lower --num-envs or --unroll",
    )
    jax.eval_shape(args.agent.update, run.agent, seen, key)  # says what its batch is too small for
    return parts


if __name__ == "__main__":
    cli.run(main, Args)
