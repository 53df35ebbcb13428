"""Every test runs on CPU unless told otherwise, and hypothesis repeats itself on CI."""

import os
import signal
from importlib import metadata

from hypothesis import settings

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before anything imports jax
# Tests compile for longer than they run.  At level 0 seeds alone are no longer those in company;
# without fusion emitters, which newer versions are never without, a quarter less is compiled.
flags = "--xla_backend_optimization_level=1"
if metadata.version("jaxlib").startswith("0.10."):
    flags += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", flags)

# A shell that runs the tests in the background ignores Ctrl-C for all it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the first example of a jitted property compiles it.
settings.register_profile("robotrl", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("robotrl")
