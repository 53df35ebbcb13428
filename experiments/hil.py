"""Learning from what robots do, with a human at hand: the learner, beside any number of robots.

python -m experiments.hil --env panda-peg-insertion
python -m rl.bridge learn runs/hil/explorer.zip --secrets runs/hil/keys --robot ROBOT --keys

The first says how robots come to it: the second, on each robot's machine.  RLPD (Ball et al. 2023,
arXiv:2302.02948) learns of all that was done and, for half of each batch, of demonstrations and of
what humans did (HIL-SERL: Luo et al. 2024, arXiv:2410.21845).  No step is lost that a robot has
kept, whatever is killed; --resume goes on.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import tyro

import envs
from agents.sac import SAC
from envs.simulation import Simulation
from experiments import base, cli, deploy, host, kept, offline, play, taken
from experiments import judge as judges
from experiments.explorer import Judge, leaves, publish, starts, written
from experiments.kept import Work
from experiments.lived import VIEWS, Kind
from experiments.taken import EXPLORER, Intake, Seen, Store, added, taken_in
from rl import artefact, buffer, health, runs
from rl.record import Record
from rl.saver import Saver
from rl.stop import Stop
from rl.types import Array, Key, Metrics, PyTree, Transition

IDLE_S = 0.02  # between two looks for what robots have done
SAID_S = 10.0  # between two lines of the record


@dataclass(frozen=True)
class Args(host.Args):
    env: Any = field(default_factory=lambda: envs.make_task("panda-peg-insertion"))  # --env NAME
    env_name: tyro.conf.Suppress[str] = "panda-peg-insertion"
    base: Path | None = None  # a run whose policy is learned above, as by --agent resfit, or expo
    demos: Path | None = None  # a run of this, whose humans' steps are there from the beginning
    steps: int = 24_000  # of robots, after which it is done
    view: Kind = "takeover"  # what a human's acts tell
    success: Literal["task", "none"] | Path = "task"  # who says it is done, besides humans: the
    # task's program, nobody, or what a run of experiments.classifier has learned
    learning_starts: int = 200  # steps before that
    most_updates: float = 4.0  # of the critics for each step, at most; fewer where time lacks
    updates: int = 8  # of the actor in a row, between two looks
    batch_size: int = 256
    mix: float = 0.5  # share of each batch that humans have shown
    n_step: int = 3  # rewards in a target, of who plans no chunks
    buffer_size: int = 200_000  # steps
    publish_s: float = 1.0  # s between two versions of the weights
    listen: str = field(default="127.0.0.1:9890", metadata={"anew": True})  # host:port for robots
    robots: tuple[str, ...] = ("robot",)  # names of those that may
    secrets: Path | None = None  # a folder of keys (python -m rl.bridge keys); made in the run's
    reward_scale: float = 10.0  # of rewards as they are learned from: 1 for what is done
    reward_shift: float = 0.0  # added to them then
    eval_episodes: int = 100
    out: Path = Path("runs/hil")
    agent: Any = SAC(
        critics=4, subset=2, layer_norm=True, actor_q="mean", gamma=0.98, alpha=0.05,
        target_entropy=-2.5, entropy_backup=False, normalise=True, delay=4, hidden=(128, 128),
        critic_hidden=(128, 128),
    )  # fmt: skip


class Run(NamedTuple):
    """All that learning carries besides what robots did, which the ledger has."""

    learner: PyTree  # the agent's state
    updates: Array  # [] int32, of the actor
    observed: Array  # [] int32, steps that the agent's statistics have counted
    key: Key


def update(args: Args, run: Run, seen: Seen) -> tuple[Run, Metrics]:
    """A few of the actor's, and as many of the critics' as it has for each."""
    keys = jax.random.split(jax.random.fold_in(run.key, run.updates), 3)
    shape = args.updates, args.agent.delay
    shared = round(args.mix * args.batch_size)
    count = math.prod(shape)
    length = window(args)
    parts = [
        buffer.sample(seen.all, keys[0], count * (args.batch_size - shared), length),
        buffer.sample(seen.shown, keys[1], count * shared, length),
    ]
    split = [jax.tree.map(lambda x: x.reshape(*shape, -1, *x.shape[1:]), part) for part in parts]
    batch = jax.tree.map(lambda *xs: jnp.concatenate(xs, 2), *split)

    def one(learner: PyTree, now: tuple[Transition, Key]) -> tuple[PyTree, Metrics]:
        return args.agent.update(learner, *now)

    every = batch, jax.random.split(keys[2], args.updates)
    learner, metrics = jax.lax.scan(one, run.learner, every)
    run = run._replace(learner=learner, updates=run.updates + args.updates)
    return run, jax.tree.map(jnp.mean, metrics)


def main(args: Args) -> None:
    taken.tell_left(args)
    env = host.simulated(args)
    check(args)
    taken.check_size(args.buffer_size, env)
    judge = judges.judge(args.success, env, args.env_name)
    found = base.base(args, env) if args.base else None
    args = replace(args, agent=cli.found(args.agent, env.task))
    fresh = partial(begin, args, env, found)
    with host.record_of(args, env) as log:
        log.update(**(found.facts if found else {}))
        run = learn(args, env, judge, fresh, log)
        policy = args.agent.policy(explore=False, action_dim=env.action_dim)
        params = args.agent.deploy(run.learner)
        deploy.Deployer(env, policy, args.env_name).write(
            log, kept.together(params), kept.together(deploy.acted(env, policy, params))
        )
        play.conclude(log, args.eval_episodes, args.video)


def begin(args: Args, env: Simulation, found: base.Base | None) -> Run:
    """Nothing is learned yet; a base that is `found` is there."""
    none, key = jnp.int32(0), jax.random.key(args.seed)
    given = (found.params,) if found else ()
    run = Run(args.agent.init(key, base.blank(env), base.action(env), *given), none, none, key)
    return jax.tree.map(jnp.copy, run)  # of which each leaf is given away


def learn(args: Args, env: Simulation, judge: Judge, fresh: Callable[[], Run], log: Record) -> Run:
    """Take in what robots do, learn of it, and give them what was learned."""
    with Stop() as stop:
        if not (path := log.out / EXPLORER).exists():
            params = args.agent.deploy(fresh().learner)
            starts(env, log.out / "starts.npz", args.seed)
            written(path, args.agent, env, judge, args.env_name, params, kept.name(log))
        if stop.asked:
            raise KeyboardInterrupt
        policy = artefact.read(path)
        # Before what takes time: what robots did while nobody learned is to be kept soon.
        with taken_in(log.out, policy, args.listen, args.robots, args.secrets) as process:
            saver = Saver(log, args.save_s)
            at = runs.step_of(args.resume) if args.resume else None
            run = kept.begun(saver, fresh, at) if args.resume else fresh()
            intake = Intake(view := VIEWS[args.view], env, policy.spec, log.out / "ledger")
            store = Store(intake.robot, args.buffer_size, args.reward_scale, args.reward_shift)
            learning = jax.jit(partial(update, args), donate_argnums=0).lower(run, store.seen)
            work = Work(log, saver, intake, store, stop, process, learning.compile())
            log.spent("compile")
            if args.demos:
                shown = taken.of_run(args.demos, view, env, policy.spec)
                run = added(args.agent, run, store, shown)
            run, metrics = improved(args, work, run)
            if not stop.asked:
                kept.over(log.out, args.steps, args.agent.deploy(run.learner))
                run, last = improved(args, work, run, over=True)
                metrics = last or metrics
            if not stop.asked.startswith("failed"):
                work.keep(args.agent, run, metrics)
    log.update(status=stop.asked or "done", practised=intake.counts)
    kept.picture(log)
    return run


def improved(args: Args, work: Work, run: Run, over: bool = False) -> tuple[Run, Metrics]:
    """What was learned by the time that robots have done their steps, or that it is stopped; where
    that is `over`, the updates that there was no time for are made up for."""
    log, saver, intake, store, stop, process, learning = work
    agent, metrics = args.agent, {}
    published = said = time.monotonic()
    while not stop.asked and (over or intake.counts["steps"] < args.steps):
        run = added(agent, run, store, intake.read())
        if process.poll() is not None:
            raise ValueError("What takes in the robots' steps has ended, and has said why.")
        step = intake.counts["steps"]
        most = args.most_updates * step / agent.delay
        if min(step, store.count) < args.learning_starts or int(run.updates) >= most:
            if over:
                break
            time.sleep(IDLE_S)
            continue
        if over and not metrics:
            kept.behind(round((most - int(run.updates)) * agent.delay))
        run, metrics = learning(run, store.drawn_from(window(args)))
        now = time.monotonic()
        if now - published > args.publish_s:
            publish(agent.deploy(run.learner), log.out / "weights")
            published = now
        if now - said > SAID_S:
            said, told = now, work.line(metrics, int(run.updates) * agent.delay)
            if not over:
                kept.tell(log, saver, step, told)
            if what := health.trouble(told, leaves(agent.deploy(run.learner))):
                stop.asked = f"failed: {what} by step {step:,}"
                health.diagnose(log, step, what, told, run.learner)
                break
        if saver.due and not over and step > kept.latest(saver):
            work.keep(agent, run, metrics)
    return run, metrics


def window(args: Args) -> int:
    """Steps of what is learned from at once."""
    return 1 + args.agent.ahead if hasattr(args.agent, "ahead") else args.n_step


def check(args: Args) -> None:
    """Refuse what makes no sense, before anything is made."""
    cli.at_least(0, args, "most_updates", "publish_s", "save_s")
    offline.check_rewards(args)
    taken.check_robots(args.robots, args.secrets, args.listen, args.resume is not None)
    cli.at_least(1, args, "steps", "updates", "batch_size", "n_step", "eval_episodes")
    cli.at_least(window(args), args, "learning_starts")
    cli.at_least(args.learning_starts, args, "buffer_size")
    if getattr(args.agent, "base", args) is None:
        raise ValueError(
            f"{type(args.agent).__name__} learns above a base: name a run with --base."
        )
    offline.check_agent(args.agent)
    if getattr(args.agent, "alone", 0):
        raise ValueError("Robots try no base by itself now and then: give --agent.alone 0.")
    for name, how in (("seeds", "once"), ("shards", "on one device")):
        if (value := getattr(args, name)) != 1:
            raise ValueError(f"--{name} is {value}: what robots do is learned from {how}.")
    if not 0 < args.mix < 1:
        raise ValueError(f"--mix is {args.mix}; it takes a share above 0 and below 1.")
    if args.demos and not (args.demos / "ledger").is_dir():
        raise ValueError(f"--demos {args.demos} is no run of experiments.hil: it has no ledger.")


if __name__ == "__main__":
    cli.run(main, Args)
