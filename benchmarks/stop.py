"""As many seeds as it takes: AdaStop over the tasks of a suite (rl/adastop.py)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.plan import Arm
from benchmarks.suite import Suite, pairs_of
from rl.adastop import AdaStop, Decision, Pair

Returns = Mapping[str, Sequence[float]]  # of an agent's runs of one task, in order of seeds


def verdicts(
    adastop: AdaStop, returns: Returns, pairs: Sequence[Pair], tasks: int
) -> dict[Pair, tuple[Decision, int]]:
    """What is decided on one of so many tasks, and on how many seeds of each agent.

    The tasks share the chance of a false decision evenly (Bonferroni), for returns on different
    tasks cannot be weighed against each other.
    """
    rule = replace(adastop, alpha=adastop.alpha / tasks)
    found: dict[Pair, tuple[Decision, int]] = dict.fromkeys(pairs, ("open", 0))
    most = max((len(returns[name]) for pair in pairs for name in pair), default=0)
    for seeds in range(rule.group, min(most, rule.group * rule.groups) + 1, rule.group):
        known = {name: own[:seeds] for name, own in returns.items()}
        for pair, decision in rule.decide(known, pairs).items():
            if found[pair][0] == "open":
                both = min(len(known[name]) for name in pair)
                found[pair] = decision, both // rule.group * rule.group
    return found


def wanted(suite: Suite, returns: Mapping[Arm, Sequence[float]]) -> dict[Arm, range]:
    """Seeds to run of each task and agent: a group more of those in a pair that is still open.

    Nobody begins a group before all that are still compared have ended the one before it; who is
    in no pair has the suite's seeds.
    """
    rule, pairs, counts = suite.adastop, pairs_of(suite), dict[Arm, range]()
    learning = [name for name, agent in suite.agents.items() if not agent.published]
    compared = {name for pair in pairs for name in pair}
    for task in suite.tasks:
        mine = {agent: returns.get((task, agent), ()) for agent in suite.agents}
        said = verdicts(rule, mine, pairs, len(suite.tasks))
        members = {name for pair in pairs if said[pair][0] == "open" for name in pair}
        looks = min((len(mine[name]) // rule.group for name in members), default=0)
        given = [len(mine[name]) // rule.group for name in members if name not in learning]
        most = min([looks + 1, rule.groups, *given])  # no further than what others published goes
        for name in learning:
            own = -(-len(mine[name]) // rule.group)
            groups = max(own, most) if name in members else own
            counts[task, name] = range(groups * rule.group if name in compared else suite.seeds)
    return counts
