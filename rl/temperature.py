"""How much an agent pays for its policy's randomness (Haarnoja et al. 2018, arXiv:1812.05905)."""

import jax.numpy as jnp

from rl.types import Array, Metrics


def loss(log_alpha: Array, entropy: Array, wanted: float) -> tuple[Array, Metrics]:
    """Lower where entropy [], in nats, is as wanted: the temperature grows while there is less."""
    alpha = jnp.exp(log_alpha)
    found = alpha * (entropy - wanted)
    return found, {"alpha_loss": found, "alpha": alpha}
