"""Every test runs on CPU unless told otherwise, and hypothesis repeats itself on CI."""

import os
import signal
from collections.abc import Iterator
from importlib import metadata

import pytest
from hypothesis import settings

from tests.truths import Scene, clean

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before anything imports jax
# Tests compile for longer than they run: a third less is compiled where little is optimised, and
# without fusion emitters, which newer versions are never without, a quarter less.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
flags = "--xla_backend_optimization_level=1"
if metadata.version("jaxlib").startswith("0.10."):
    flags += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", flags)

# A shell that runs the tests in the background ignores Ctrl-C for all it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the first example of a jitted property compiles it.
settings.register_profile("robotrl", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("robotrl")


@pytest.fixture(autouse=True)
def optimised(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test marked so compiles as a user does: else seeds alone are not those in company, and what
    trains takes twice as long."""
    if request.node.get_closest_marker("optimised") is None:
        yield
        return
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()


@pytest.fixture(scope="module", params=[1, 5])
def scene(request: pytest.FixtureRequest) -> Scene:
    """A truth file in which nothing is wrong, of a wire with so many ticks in a period."""
    return request.param, clean(request.param)
