"""Every test runs on CPU unless told otherwise, and hypothesis repeats itself on CI."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before anything imports jax

from hypothesis import settings

# No deadline: the first example of a jitted property compiles it.
settings.register_profile("robotrl", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("robotrl")
