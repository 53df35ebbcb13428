"""What agents do with pictures: stack, shift and encode them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl import pixels
from rl.nets import apply
from rl.types import Transition

SHIFTED = jax.jit(pixels.shift, static_argnums=2)


def test_an_encoder_takes_bytes_and_gives_the_features_its_strides_leave() -> None:
    net = pixels.Encoder((32, 32, 32, 32), (2, 1, 1, 1))
    image = jax.ShapeDtypeStruct((5, 84, 84, 9), jnp.uint8)
    params = jax.eval_shape(net.init, jax.random.key(0), image)
    out = jax.eval_shape(net.apply, params, image)
    assert (out.shape, out.dtype) == ((5, 35 * 35 * 32), jnp.float32)  # as DrQ-v2's has
    small = pixels.Encoder((4, 8), (2, 1))
    rng = np.random.default_rng(0)
    image = jnp.asarray(rng.integers(0, 256, (2, 3, 16, 16, 6)), jnp.uint8)
    params = small.init(jax.random.key(0), image)
    apart = jnp.stack([apply(small, params, x) for x in image])  # any leading axes
    assert np.allclose(apply(small, params, image), apart, atol=1e-5)
    dark, light = (apply(small, params, jnp.full((16, 16, 6), x, jnp.uint8)) for x in (0, 255))
    assert jnp.abs(dark - light).max() > 0.1


def test_its_kernels_are_orthogonal_and_both_ways_to_convolve_agree() -> None:
    image = jnp.asarray(np.random.default_rng(0).normal(size=(2, 12, 11, 9)), jnp.float32)
    params = pixels.Encoder((32,), (1,)).init(jax.random.key(0), image.astype(jnp.uint8))
    kernel = np.asarray(params["params"]["kernel_0"])
    assert np.allclose(kernel.T @ kernel, 2 * np.eye(32), atol=1e-4)
    for stride in (1, 2):
        ours = pixels.by_products(image, kernel, stride)
        assert ours.shape == (2, (12 - 3) // stride + 1, (11 - 3) // stride + 1, 32)
        assert np.allclose(ours, pixels.by_library(image, kernel, stride), atol=1e-4)


def test_a_shift_is_a_crop_of_the_picture_with_its_edge_repeated() -> None:
    rng, most = np.random.default_rng(0), 2
    images = rng.integers(0, 256, (400, 7, 6, 3)).astype(np.uint8)
    got = np.asarray(SHIFTED(jax.random.key(0), jnp.asarray(images), most))
    assert got.dtype == np.uint8
    wide = np.pad(images, ((0, 0), (most, most), (most, most), (0, 0)), mode="edge")
    counts = np.zeros((2 * most + 1, 2 * most + 1), int)
    for world, image in enumerate(got):
        fits = [
            (i, j) for i, j in np.ndindex(counts.shape)
            if (wide[world, i : i + 7, j : j + 6] == image).all()
        ]  # fmt: skip
        assert len(fits) == 1
        counts[fits[0]] += 1
    # Every one of 25 is drawn, and evenly: 16 of 400 each, a standard deviation of 4.
    assert counts.min() >= 4
    assert counts.max() <= 32
    again, other = (SHIFTED(jax.random.key(k), jnp.asarray(images), most) for k in (0, 1))
    assert (np.asarray(again) == got).all()
    assert (np.asarray(other) != got).any()


def test_no_shift_changes_nothing() -> None:
    images = jnp.arange(2 * 4 * 4 * 1, dtype=jnp.uint8).reshape(2, 4, 4, 1)
    assert (SHIFTED(jax.random.key(0), images, 0) == images).all()


def test_pictures_are_what_has_bytes_and_a_critics_own_view_is_left_out() -> None:
    image = jnp.ones((2, 8, 8, 3), jnp.uint8)
    obs = {"front": image, "wrist": 2 * image, "policy": jnp.ones((2, 5)), "critic": jnp.ones(2)}
    got = pixels.seen(obs)
    assert got.image.shape == (2, 8, 8, 6)
    assert got.numbers.shape == (2, 5)
    assert pixels.seen({"image": image}).numbers.shape == (2, 0)
    for bad in (jnp.ones(3), {"policy": jnp.ones(3)}, {"a": image, "b": image[:, :4]}):
        with pytest.raises(ValueError, match="no picture"):
            pixels.seen(bad)


def told(ends: str, terminated: str) -> Transition:
    """One window of an episode after another, whose pictures and numbers are the step's count."""
    steps = len(ends)
    at = jnp.arange(steps)
    picture = lambda x: {"image": x[None, :, None, None, None].astype(jnp.uint8)}  # noqa: E731
    flags = lambda word: jnp.array([[x == "x" for x in word]])  # noqa: E731
    return Transition(
        obs=picture(at), action=at[None, :, None].astype(float), reward=10.0 ** at[None],
        terminated=flags(terminated), truncated=flags(ends) & ~flags(terminated),
        next_obs=picture(100 + at),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ends", "obs", "after", "reward", "discount"),
    [
        ("....", [0, 1, 2], [2, 3, 103], 1100, 0.25),
        ("x...", [1, 1, 2], [2, 3, 103], 1100, 0.25),  # it began at step 1
        (".x..", [2, 2, 2], [2, 3, 103], 1100, 0.25),
        ("xx..", [2, 2, 2], [2, 3, 103], 1100, 0.25),
        ("..x.", [0, 1, 2], [1, 2, 102], 100, 0.5),  # what comes after its end is another's
        (".xx.", [2, 2, 2], [2, 2, 102], 100, 0.5),
    ],
)
def test_a_window_gives_the_pictures_that_a_policy_would_have_seen(
    ends: str, obs: list[int], after: list[int], reward: float, discount: float
) -> None:
    window = told(ends, "....")
    window = window._replace(reward=jnp.array([[0.0, 0.0, 100.0, 2000.0]]))
    got = jax.jit(pixels.sample, static_argnums=(1, 2))(window, 2, 0.5)
    assert got.obs.image.ravel().tolist() == obs
    assert got.next_obs.image.ravel().tolist() == after
    assert got.action.ravel().tolist() == [2]
    assert (got.reward.item(), got.discount.item()) == (reward, discount)


def test_what_terminates_has_no_future_and_one_picture_is_a_stack() -> None:
    got = pixels.sample(told("x", "x"), 0, 0.5)
    assert (got.discount.item(), got.obs.image.shape) == (0, (1, 1, 1, 1))
    with pytest.raises(ValueError, match="Windows of 3 steps are needed"):
        pixels.sample(told("..", ".."), 2, 0.5)
