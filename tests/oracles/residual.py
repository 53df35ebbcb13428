"""Corrections learned on top of a policy that is kept as it is, in float64 numpy: meant to be read.

Sources:
- ResFiT: Ankile et al. 2025, arXiv:2509.19301, and where it is said, the code released with it
  (q_agent.py, residual_env_wrapper.py).
- ResiP: Ankile et al. 2024, arXiv:2407.16677. Its losses are PPO's, arXiv:1707.06347, eq. 7.

What residual learning shares with other agents is offpolicy.py's and ppo.py's, under its name here.

Shapes: B examples, E critics, of which K count in a target, A action and O observation numbers, n
steps a window, T ticks. Actions are normalised. The base's action is a constant: no network here
ever changes it.
"""

from typing import NamedTuple

import numpy as np

from tests.oracles import offpolicy, ppo


def _f64(x):
    return np.asarray(x, dtype=np.float64)


def gradient(loss, at, step=1e-5):
    """Central differences of loss(array), a number, in every entry of the array `at`."""
    at = _f64(at)
    out = np.zeros(at.shape)
    for index in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[index] += step
        down[index] -= step
        out[index] = (loss(up) - loss(down)) / (2.0 * step)
    return out


# What is played


def combined(base, raw, scale):
    """base + scale raw [.., A], not clipped: ResiP's raw residual may be any number."""
    base, raw = _f64(base), _f64(raw)
    assert base.shape == raw.shape, (base.shape, raw.shape)
    return base + scale * raw


def total(base, mu, scale):
    """base + scale tanh(mu) [.., A], not clipped: what ResFiT's replay stores, and Q is taught."""
    return combined(base, np.tanh(_f64(mu)), scale)


def executed(action):
    """What the environment gets of it, within [-1, 1]."""
    return np.minimum(np.maximum(_f64(action), -1.0), 1.0)


class Rollout(NamedTuple):
    """T ticks: [T, O], [T, A] twice, [T] twice, [T, O], [T, A]."""

    obs: np.ndarray
    base: np.ndarray
    total: np.ndarray
    reward: np.ndarray
    done: np.ndarray
    next_obs: np.ndarray
    next_base: np.ndarray


def rollout(env_step, first_obs, base_step, learned_step, scale, ticks):
    """T ticks of one environment, played by residual(base, learned, scale).

    - base_step(carry, obs) -> (action, carry); its carry is None where an episode begins.
    - learned_step(obs, base action) -> the raw residual (tanh(mu) in ResFiT).
    - env_step(obs, executed action) -> (obs', reward, done); obs' is the ended episode's own.
    - first_obs is where every episode begins, or a function of the episode's number (0, 1, ..).

    next_base is what the base says at next_obs with the carry it has there. Where the episode goes
    on it is the next tick's base action, asked once; where it ended, the answer and its carry are
    dropped, and the base begins anew at the next episode's first observation.
    """

    def ask(carry, obs):
        action, carry = base_step(carry, obs)
        return _f64(action), carry

    begin = first_obs if callable(first_obs) else lambda _: first_obs
    rows, episode, done = [], 0, True
    for _ in range(ticks):
        if done:
            obs = _f64(begin(episode))
            (base, carry), episode = ask(None, obs), episode + 1
        action = combined(base, learned_step(obs, base), scale)
        next_obs, reward, done = env_step(obs, executed(action))
        next_obs = _f64(next_obs)
        next_base, carry = ask(carry, next_obs)
        rows.append((obs, base, action, float(reward), bool(done), next_obs, next_base))
        obs, base = next_obs, next_base
    return Rollout(*(np.array(column) for column in zip(*rows, strict=True)))


# ResFiT


def window_return(reward, terminated, truncated, gamma):
    """(sum [B], discount [B], steps [B]) of windows [B, n] of consecutive steps.

    The sum ends with the window, or with the first step that ends an episode, which counts; `steps`
    are those summed. The discount is gamma^steps, of the value of the last summed step's own next
    observation; it is 0 where that step terminated, though it be truncated too. (The released code
    bootstraps neither after a truncation nor from a window that an episode's end cut short.)
    """
    summed, discount, last = offpolicy.n_step(reward, terminated, truncated, gamma)
    return summed, discount, last + 1


def target(reward, discount, next_base, next_mu, noise, scale, target_q):
    """y [B] = reward + discount min_k target_q(a') [K, B], of the K target critics that count.

    a' = clip(next_base + scale tanh(next_mu) + noise, -1, 1), next_mu [B, A] the target actor's,
    which saw next_base; the noise [B, A] is already clipped, and is not scaled.
    """
    reward, discount, noise = _f64(reward), _f64(discount), _f64(noise)
    proposed = total(next_base, next_mu, scale)
    assert proposed.shape == noise.shape, (proposed.shape, noise.shape)
    q = _f64(target_q(executed(proposed + noise)))
    assert q.shape[1:] == reward.shape == discount.shape, (q.shape, reward.shape, discount.shape)
    assert len(q) > 0, q.shape
    return reward + discount * np.min(q, axis=0)


critic_loss = offpolicy.sac_critic_loss  # (q [E, B], y [B]): the paper's, a mean over E and B


def critic_loss_released(q, y):
    """Mean over the batch of (mean over critics of |q - y|)^2 (the released code): no greater."""
    q, y = _f64(q), _f64(y)
    assert q.shape[1:] == y.shape, (q.shape, y.shape)
    return float(np.mean(np.mean(np.abs(q - y), axis=0) ** 2))


def actor_loss(base, mu, scale, q, l2):
    """-mean over critics and batch of q(clip(total)) + l2 mean_B sum_A (scale tanh(mu))^2.

    q(action [B, A]) -> [E, B]. Where the clip acts, the gradient in mu is the penalty's alone.
    """
    values = _f64(q(executed(total(base, mu, scale))))
    assert values.shape[1:] == (len(base),), values.shape
    residual = scale * np.tanh(_f64(mu))
    return float(-np.mean(values) + l2 * np.mean(np.sum(residual**2, axis=-1)))


polyak = offpolicy.polyak  # (slow, new, tau): (1 - tau) slow + tau new, of arrays


# ResiP


def seen(obs, base):
    """[.., O + A]: what actor and critic get, the observation first."""
    return np.concatenate([_f64(obs), _f64(base)], axis=-1)


residual_logp = ppo.normal_logp  # (raw, mean, log_std): of the UNSCALED residual, summed over A


def normalised(advantage):
    """[B]: mean 0, std 1: (A - mean) / (std + 1e-8), the std that of the population."""
    advantage = _f64(advantage)
    return (advantage - np.mean(advantage)) / (np.std(advantage) + 1e-8)


def policy_loss(logp, old_logp, advantage, eps):
    """(loss, ratio [B]): -mean min(r A, clip(r, 1 - eps, 1 + eps) A), A normalised here."""
    logp, old_logp, advantage = _f64(logp), _f64(old_logp), normalised(advantage)
    assert logp.shape == old_logp.shape == advantage.shape, (logp.shape, advantage.shape)
    ratio = np.exp(logp - old_logp)
    bounded = np.minimum(np.maximum(ratio, 1.0 - eps), 1.0 + eps)
    return float(-np.mean(np.minimum(ratio * advantage, bounded * advantage))), ratio


value_loss = ppo.value_loss  # (v [B], returns [B]): half the mean squared error


# Distillation


def gaussian_kl(teacher_mean, teacher_log_std, student_mean, student_log_std):
    """Batch mean of KL(teacher || student) summed over A; each [B, A], a log std [A] too."""
    each = ppo.normal_kl(teacher_mean, teacher_log_std, student_mean, student_log_std)
    return float(np.mean(each))
