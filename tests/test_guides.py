"""What is told of the ways to choose a policy's plans."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from agents.flow_bc import FlowBC
from agents.idql import IDQL
from benchmarks import guides
from benchmarks.process import ROOT
from experiments import play
from rl.chunks import Chunks
from rl.critics import Critics
from rl.denoisers import Dense
from rl.guidance import Best, Doit

POLICIES = ROOT / "benchmarks" / "policies"


@pytest.mark.long
def test_each_guide_is_judged_or_it_is_told_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    env = envs.simulate(envs.make_task("Reacher-v5"), "native")
    agent = IDQL(
        FlowBC(Chunks(horizon=2, execute=1), Dense((8,))), critics=Critics((8,), normalise=False)
    )
    obs = env.reset(jax.random.key(0)).obs
    params = agent.deploy(agent.init(jax.random.key(0), obs, jnp.zeros(env.action_dim)))
    monkeypatch.setattr(guides, "GUIDES", {"a": Best(1), "b": Doit()})
    _, _, first, second = guides.table(agent, env, [params], 5)
    returns, _ = play.verdict(env, agent.base.policy(False, env.action_dim), [params], 5)
    assert first.startswith(f"| a | {np.mean(returns):,.0f} | ")
    low, high = map(float, first.split("|")[3].split(" to "))
    assert low < np.mean(returns) < high
    assert second.startswith("not b: Doit steers a diffusion's steps; FlowBC has none")


def test_what_has_no_guides_is_refused() -> None:
    with pytest.raises(ValueError, match="panda-peg-insertion-base is of FlowBC: guides choose"):
        guides.main(guides.Args(POLICIES / "panda-peg-insertion-base"))
    with pytest.raises(ValueError, match="--episodes is 0; it needs at least 1"):
        guides.main(guides.Args(POLICIES / "panda-peg-insertion-base", 0))
