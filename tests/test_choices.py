"""Where a kind is chosen on a command line does not matter."""

import itertools

import pytest

from experiments import cli, finetune, offline

BASE = "benchmarks/policies/panda-peg-insertion-diffusion"


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("--steps 5 --seed 1", "--steps 5 --seed 1"),
        ("agent.guide:doit --agent.guide.count 3 --steps 5",
         "--steps 5 agent.guide:doit --agent.guide.count 3"),
        ("--agent.guide.count 3 --steps 5 agent.guide:doit --no-video",
         "--steps 5 --no-video agent.guide:doit --agent.guide.count 3"),
        ("agent.net:dense --agent.net.hidden 8 8 --agent.lr 1 sampler:top --sampler.share 0.1",
         "--agent.lr 1 agent.net:dense --agent.net.hidden 8 8 sampler:top --sampler.share 0.1"),
        ("--help agent.guide:cdsa --agent.guide.size -5 --steps 1",
         "--steps 1 agent.guide:cdsa --agent.guide.size -5 --help"),
        ("--robot localhost:8080 --steps 5", "--robot localhost:8080 --steps 5"),
        ("--agent.guided agent.guide:best", "--agent.guided agent.guide:best"),
    ],
)  # fmt: skip
def test_what_is_chosen_comes_last_with_its_flags(given: str, made: str) -> None:
    assert cli.ordered(given.split(), {"agent", "sampler"}) == made.split()


def test_a_guide_may_stand_anywhere() -> None:
    parts = ["agent.guide:doit", "--agent.guide.count=3", "--steps=50000", "--agent.lr=0.1"]
    front = ["--agent", "idql", "--base", BASE]
    found = [cli.parse(finetune.Args, [*front, *order]) for order in itertools.permutations(parts)]
    assert all(args == found[0] for args in found)
    assert (found[0].agent.guide.count, found[0].steps, found[0].agent.lr) == (3, 50_000, 0.1)


@pytest.mark.parametrize("more", [["--agent.lr", "1"], ["--nonsense"], ["agent.guide:best"]])
def test_a_run_that_goes_on_takes_no_flag_of_whatever_agent(more: list[str]) -> None:
    for order in (["--resume", "run", *more], [*more, "--resume=run"]):
        with pytest.raises(ValueError, match="--resume takes no other flags"):
            cli.parse(offline.Args, order)
