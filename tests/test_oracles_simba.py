"""SimbaV2's oracle by hand, by a second way, and with errors planted."""

import numpy as np
import pytest
from scipy import special

from tests.oracles import crossq, heads, networks


def unit(rng, *shape):
    return networks.unit_columns(rng.normal(size=shape))


def norm(h):
    return h / np.linalg.norm(h, axis=1, keepdims=True)


def head(rng, width, out):
    kernels = unit(rng, width, width), unit(rng, width, out)
    return kernels, (np.ones(width) * 1.2, 1.0, 1.0), np.ones(out)


def top(h, part):
    return h @ part[0][0] * part[1][0] @ part[0][1] + part[2]


def test_simba_networks():
    rng = np.random.default_rng(6)

    embed = unit(rng, 6, 4), (rng.uniform(0.5, 1.0, 4), 0.7, 0.7)
    hidden, alpha = (rng.uniform(0.2, 0.5, 16), 0.35, 0.35), (rng.uniform(0.3, 0.7, 4), 0.3, 0.5)
    blocks = [((unit(rng, 4, 16), unit(rng, 16, 4)), hidden, alpha) for _ in range(2)]
    value, mean, std = head(rng, 4, 7), head(rng, 4, 2), head(rng, 4, 2)
    obs, action = rng.normal(size=(5, 3)), rng.uniform(-1, 1, (5, 2))

    def trunk(x, blocks, shift=3.0, relu=True, ratio=0.6):
        h = norm(np.hstack([x, np.full((5, 1), shift)])) @ embed[0] * embed[1][0]
        h = norm(h)
        for (w1, w2), s, a in blocks:
            m = h @ w1 * s[0]
            m = norm((np.maximum(m, 0.0) + 1e-8 if relu else m) @ w2)
            h = norm(h + a[0] * ratio * (m - h))
        return h

    x = np.hstack([obs, action])
    got = crossq.simba_critic(obs, action, embed, blocks, value)
    np.testing.assert_allclose(got, top(trunk(x, blocks), value))
    errors = [
        top(trunk(np.hstack([action, obs]), blocks), value),
        top(trunk(x, blocks[::-1]), value),
        top(trunk(x, blocks[:1]), value),
        top(trunk(x, blocks, shift=0.0), value),
        top(trunk(x, blocks, relu=False), value),
        top(np.maximum(trunk(x, blocks), 0.0), value),
        top(trunk(x, blocks, ratio=1.0), value),
        top(trunk(x, blocks), (*value[:2], 0.0)),
    ]
    assert all(np.abs(got - wrong).max() > 1e-3 for wrong in errors)
    embed = unit(rng, 4, 4), embed[1]
    got = crossq.simba_actor(obs, embed, blocks, mean, std)
    h = trunk(obs, blocks)
    np.testing.assert_allclose(got[0], top(h, mean))
    np.testing.assert_allclose(got[1], -4.0 + 6.0 * np.tanh(top(h, std)))
    assert np.abs(got[0] - top(h, std)).max() > 1e-3  # heads swapped
    assert np.abs(got[1] - np.clip(top(h, std), -10.0, 2.0)).max() > 1e-3


def test_c51_target():
    a, b = [0.5, 1e-12, 0.5], [1e-12, 0.9, 0.1]  # means 0 and 0.1
    logits = np.log([[a, b], [b, a]]) + 3.0
    lowest = crossq.c51_target(logits, -1.0, 1.0, "min")
    np.testing.assert_allclose(lowest, [a, a], atol=1e-9)
    average = crossq.c51_target(logits, -1.0, 1.0, "mean")
    np.testing.assert_allclose(average, [[0.25, 0.45, 0.3]] * 2, atol=1e-9)
    assert np.abs(average - special.softmax(logits.mean(0), axis=-1)).max() > 1e-3
    for how in ("min", "mean"):  # the repository's case of one critic
        one = crossq.c51_target(logits[:1], -1.0, 1.0, how)
        np.testing.assert_allclose(one, [a, b], atol=1e-9)
    # Reward -1 clips most of `a` but not of `b`: chosen after the projection it would be `b`.
    kw = {"discount": np.ones(1), "bonus": np.zeros(1)}
    projected = [heads.c51_project([p], -1.0, 1.0, [-1.0], **kw) for p in (a, b)]
    np.testing.assert_allclose(heads.c51_pick(projected, -1.0, 1.0), projected[1])
    assert np.abs(projected[0] - projected[1]).max() > 1e-3


def test_simba_losses():
    rng = np.random.default_rng(7)
    logits, nxt = rng.normal(size=(2, 6, 5)), rng.normal(size=(2, 6, 5)) * 2.0
    batch = {"reward": rng.normal(size=6) * 0.2, "next_logp": rng.normal(size=6) + 1.0}
    batch["discount"] = np.array([0.9, 0.0, 0.9, 0.9, 0.9, 0.0])
    atoms = np.linspace(-1.0, 1.0, 5)
    means = special.softmax(nxt, axis=-1) @ atoms
    probs, log_q = special.softmax(nxt, axis=-1), special.log_softmax(logits, axis=-1)

    def plain(index, *, sign=-1.0, discount=batch["discount"], over=np.sum):
        z = atoms + sign * 0.3 * batch["next_logp"][:, None]
        image = np.clip(batch["reward"][:, None] + discount[:, None] * z, -1.0, 1.0)
        share = np.clip(1.0 - np.abs(image[:, :, None] - atoms) / 0.5, 0.0, 1.0)
        p = probs.mean(0) if index is None else probs[index, np.arange(6)]
        target = (share * p[:, :, None]).sum(1)
        return over(-(target * log_q).sum(-1).mean(1))

    least = means.argmin(0)
    kw = {"alpha": 0.3, "how": "min"}
    loss = crossq.simba_critic_loss(logits, nxt, batch, -1.0, 1.0, **kw)
    assert loss == pytest.approx(plain(least))
    average = crossq.simba_critic_loss(logits, nxt, batch, -1.0, 1.0, alpha=0.3, how="mean")
    assert average == pytest.approx(plain(None))
    errors = {
        "max": plain(1 - least),
        "average": plain(None),
        "log pi added": plain(least, sign=1.0),
        "no entropy": plain(least, sign=0.0),
        "termination ignored": plain(least, discount=np.full(6, 0.9)),
        "mean over critics": plain(least, over=np.mean),
    }
    assert all(abs(value - loss) > 1e-3 for value in errors.values()), (loss, errors)
    logp, value = batch["next_logp"], special.softmax(logits, axis=-1) @ atoms
    for how, q in (("min", value.min(0)), ("mean", value.mean(0))):
        got = crossq.simba_actor_loss(logits, -1.0, 1.0, logp, 0.3, how)
        assert got == pytest.approx((0.3 * logp - q).mean())
        wrongs = [-0.3 * logp - q, 0.3 * logp + q, 0.3 * logp - value.max(0)]
        assert all(abs(wrong.mean() - got) > 1e-3 for wrong in wrongs)


def test_normalise_observation():
    got = crossq.normalise_observation([[3.0, 1e-4, 100.0]], [1.0, 0.0, 0.0], [4.0, 0.0, 1e-4])
    np.testing.assert_allclose(got, [[1.0, 1.0, 1e4]], rtol=1e-4)  # eps inside the root, no clip
