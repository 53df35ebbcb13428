"""Losses that fine-tune flow and diffusion policies, in float64 numpy: slow, meant to be read.

Sources, the papers, and where it is said the code released with them:
- FQL: Park et al. 2025, arXiv:2502.02538. Q-chunking (QC): Li et al. 2025, arXiv:2507.07969.
- DSRL: Wagenmaker et al. 2025, arXiv:2506.15799. EXPO: Dong et al. 2025, arXiv:2507.07986.
- ReinFlow: Zhang et al. 2025, arXiv:2505.22094. DPPO: Ren et al. 2024, arXiv:2409.00588.

What other agents share is offpolicy.py's, ppo.py's and residual.py's, under its name here.

Shapes: B examples, E critics, N candidates, n steps a window, H actions a plan, A numbers an
action, X <= H actions executed of a plan, K steps of the generator, D numbers of a noise or an edit
(a flattened plan). A net is a callable of x [B, H, A] and times [B]; noise is at time 0.
"""

import math
from itertools import pairwise

import numpy as np

from tests.oracles import offline, offpolicy, ppo, residual


def _f64(x):
    return np.asarray(x, dtype=np.float64)


def _over_critics(q, how):
    """[B]: the "mean" or the "min" of critics [E, B]."""
    q = _f64(q)
    assert q.ndim == 2, q.shape
    assert len(q) > 0, q.shape
    return {"mean": np.mean, "min": np.min}[how](q, axis=0)


def _log_density(x, mean, std):
    """Of every number by itself, x's shape; mean and std broadcast to it."""
    x = _f64(x)
    mean, std = np.broadcast_to(_f64(mean), x.shape), np.broadcast_to(_f64(std), x.shape)
    assert (std > 0).all(), std
    return -0.5 * ((x - mean) / std) ** 2 - np.log(std) - 0.5 * math.log(2.0 * math.pi)


def _clip(x, low, high):
    return np.minimum(np.maximum(_f64(x), _f64(low)), _f64(high))


# FQL and QC


def chunk_return(reward, terminated, truncated, gamma):
    """(R [B], D [B]) of windows [B, n]: discounted up to the end, or the first step that ends.

    D is gamma^(steps summed), and 0 where the last of them terminated, though truncated too.
    """
    summed, discount, _ = offpolicy.n_step(reward, terminated, truncated, gamma)
    return summed, discount


def chunk_target(reward, discount, next_q, how):
    """y [B] = R + D agg_k next_q [E, B]; agg is the "mean" (QC) or the "min" (some of FQL's)."""
    reward, discount, value = _f64(reward), _f64(discount), _over_critics(next_q, how)
    assert reward.shape == discount.shape == value.shape, (reward.shape, value.shape)
    return reward + discount * value


critic_loss = offpolicy.sac_critic_loss  # (q [E, B], y [B]): a mean over E and B, no half


def q_scale(q):
    """1 / mean_B |mean_E q|, q [E, B]: a constant to the gradient."""
    return offline.q_scale(_over_critics(q, "mean"))


def student_loss(student, taught, q, alpha, normalise, *, scale=None):
    """alpha mean_BHA (student - taught)^2 - lambda mean_EB q; both plans [B, H, A], q [E, B].

    lambda is 1, or q_scale(q) if `normalise`; `scale`, if given, replaces it, so that a finite
    difference can hold it. q is what critics say of the student's plan clipped, the distance is to
    the plan as it is.
    """
    student, taught, q = _f64(student), _f64(taught), _f64(q)
    assert student.shape == taught.shape, (student.shape, taught.shape)
    assert q.shape[1:] == student.shape[:1], (q.shape, student.shape)
    if scale is None:
        scale = q_scale(q) if normalise else 1.0
    return float(alpha * np.mean((student - taught) ** 2) - scale * np.mean(q))


def best_of(candidates, q, how="mean"):
    """[B, ...]: of N candidates [N, B, ...] the one of the greatest agg_E q [N, E, B], per row."""
    candidates, q = _f64(candidates), _f64(q)
    assert candidates.shape[:2] == (q.shape[0], q.shape[2]), (candidates.shape, q.shape)
    rows = []
    for i in range(q.shape[2]):
        values = [_over_critics(critics[:, [i]], how)[0] for critics in q]
        rows.append(candidates[values.index(max(values)), i])
    return np.stack(rows)


# DSRL


def bounded(u, bound):
    """w = bound tanh(u) [.., D]: the noise that is played; bound is a number or [D]."""
    return _f64(bound) * np.tanh(_f64(u))


def bounded_logp(u, mean, log_std, bound):
    """Log density [..] of w = bound tanh(u), u ~ N(mean, exp(log_std)^2), summed over D.

    |dw/du| is bound (1 - tanh(u)^2): each of the D numbers gives a log(bound) to take off.
    """
    wide = np.broadcast_to(_f64(bound), np.shape(u)[-1:])
    return offpolicy.tanh_normal_logp(u, mean, log_std) - sum(math.log(b) for b in wide)


def steer_target(reward, discount, next_q, next_logp, alpha, entropy):
    """y [B] = R + D (min_E next_q - alpha next_logp), the last term only with `entropy`."""
    rest = {"next_logp": next_logp, "alpha": alpha, "entropy": entropy}
    return offpolicy.sac_target(reward, discount, next_q, **rest)


def noise_critic_loss(qw, qa):
    """Mean over E and B of (qw - qa)^2 [E, B]: each critic of noise is taught by its own, of
    actions (the released code takes half of the squared error, head by head)."""
    qw, qa = _f64(qw), _f64(qa)
    assert qw.shape == qa.shape, (qw.shape, qa.shape)
    assert qw.ndim == 2, qw.shape
    return float(np.mean((qw - qa) ** 2))


def steer_actor_loss(logp, qw, alpha):
    """mean_B [alpha logp - min_E qw], logp [B] and qw [E, B] of the same sampled noise."""
    return offpolicy.sac_actor_loss(qw, logp, alpha, "min")


temperature_loss = offpolicy.alpha_loss  # (log_alpha, logp [B], target): alpha (H - target)


# ReinFlow


def noise_std(raw, low, high):
    """exp(l / 2) in (low, high), raw's shape: l is log low^2 at raw = -inf, log high^2 at inf."""
    share = 0.5 * (np.tanh(_f64(raw)) + 1.0)
    least, most = math.log(low**2), math.log(high**2)
    return np.exp(0.5 * (least + share * (most - least)))


def _moments(field, std, x, i, steps, bounds):
    """(mean, std), both [B, H, A]: of the state after x, step i of `steps`."""
    t = np.full(len(x), i / steps)
    mean = _clip(x + _f64(field(x, t)) / steps, *bounds)
    return mean, np.broadcast_to(_f64(std(x, t)), x.shape)


def wander(field, noise, eps, std, bounds):
    """States [K + 1, B, H, A] from noise [B, H, A], drawn with eps [K, B, H, A].

    Step i starts at time i / K. Its mean is clipped to bounds (low, high), its eps to 3 stds, what
    comes of them is not: the plan to execute is the last state clipped to bounds.
    """
    eps, states = _f64(eps), [_f64(noise)]
    assert eps.shape[1:] == states[0].shape, (eps.shape, states[0].shape)
    for i, drawn in enumerate(eps):
        mean, spread = _moments(field, std, states[-1], i, len(eps), bounds)
        states.append(mean + spread * _clip(drawn, -3.0, 3.0))
    return np.stack(states)


def chain_logp(field, std, states, bounds, executed):
    """[B]: log density of states[1:] [K, B, H, A] given states[0], a mean per number.

    Of every state the first `executed` actions only, over K X A numbers. The densities are those of
    whole Gaussians, though eps is clipped. (The released code counts the start's too, and divides
    by (K + 1) X A.)
    """
    states = _f64(states)
    steps, (batch, _, dim) = len(states) - 1, states.shape[1:]
    total = np.zeros(batch)
    for i, (x, after) in enumerate(pairwise(states)):
        each = _log_density(after, *_moments(field, std, x, i, steps, bounds))
        total += np.sum(each[:, :executed], axis=(1, 2))
    return total / (steps * executed * dim)


# DPPO


def denoise_logp(x_next, mean, std, executed):
    """[B]: every number's log density clamped to [-5, 2], then the mean over X actions and A.

    x_next [B, H, A]; mean and std broadcast to it. What std is at least is the caller's.
    """
    each = _clip(_log_density(x_next, mean, std), -5.0, 2.0)
    assert each.ndim == 3, each.shape
    return np.mean(each[:, :executed], axis=(1, 2))


def clip_of(t, eps, base):
    """The clip range, t's shape: base at t = 0 (noisiest), eps at t = 1 (the last), exponential."""
    return base + (eps - base) * np.expm1(3.0 * _f64(t)) / math.expm1(3.0)


def denoise_discount(i, count, gamma):
    """gamma^(count - 1 - i), i's shape: 1 at the last of `count` fine-tuned steps, i = 0 first."""
    return gamma ** (count - 1.0 - _f64(i))


# DPPO and ReinFlow

normalise_advantage = residual.normalised  # [B]: (A - mean) / (population std + 1e-8)
plan_gae = ppo.gae  # [T, N], gamma= and lam= by name: T counts plans, rewards those of a plan


def ratio_loss(logp, old_logp, advantage, clip):
    """-mean_B min(r A, clip(r, 1 - c, 1 + c) A), r = exp(logp - old_logp), A as it is given.

    All [B]; c may be a number.
    """
    logp, old_logp, advantage = _f64(logp), _f64(old_logp), _f64(advantage)
    assert logp.shape == old_logp.shape == advantage.shape, (logp.shape, advantage.shape)
    width, ratio = np.broadcast_to(_f64(clip), logp.shape), np.exp(logp - old_logp)
    inside = _clip(ratio, 1.0 - width, 1.0 + width)
    return float(-np.mean(np.minimum(ratio * advantage, inside * advantage)))


# EXPO


def edited(base, u, scale, clip=False):
    """base + scale tanh(u) [.., D], within [-1, 1] only with `clip` (not so in released code)."""
    action = residual.total(base, u, scale)
    return residual.executed(action) if clip else action


edit_logp = bounded_logp  # (u, mean, log_std, scale): of the edit, so of the action before a clip


def expo_target(reward, discount, next_q):
    """y [B] = R + D max_N min_E next_q [N, E, B]: one set of critics chooses and values."""
    values = np.stack([_over_critics(critics, "min") for critics in _f64(next_q)])
    reward, discount = _f64(reward), _f64(discount)
    assert reward.shape == discount.shape == values.shape[1:], (reward.shape, values.shape)
    return reward + discount * np.max(values, axis=0)


def edit_actor_loss(logp, q, alpha):
    """mean_B [alpha logp - mean_E q], logp [B] of the edit, q [E, B] of the edited action."""
    return offpolicy.sac_actor_loss(q, logp, alpha, "mean")
