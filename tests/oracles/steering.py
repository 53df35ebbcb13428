"""What steers flow and diffusion policies by a critic, in float64 numpy: slow, meant to be read.

Sources, the papers, and where it is said the code released with them:
- PA-RL: Mark et al. 2024, arXiv:2412.06685. IDQL: Hansen-Estruch et al. 2023, arXiv:2304.10573.
- QAM: Li and Levine 2026, arXiv:2601.14234, adjoint matching: Domingo-Enrich et al. 2024,
  arXiv:2409.08861. DOIT: Zhu et al. 2026, arXiv:2602.16198.
- CDSA: Liu et al. 2024, arXiv:2406.07541, of which no code was to be had, nor the exact rule.

Shapes: B examples, N candidates, k kept, K steps of the generator, M proposals, D numbers of a
flattened plan. A net is a callable of x [B, D] and times [B]; a flow's noise is at time 0, its data
at time 1, x_t = (1 - t) noise + t data. Bounds are numbers or broadcast to a plan.
"""

from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray
Field = Callable[[Array, Array], Array]  # (x [B, D], t [B]) -> [B, D]


def _f64(x) -> Array:
    return np.asarray(x, dtype=np.float64)


def _clip(x, low, high) -> Array:
    return np.minimum(np.maximum(_f64(x), _f64(low)), _f64(high))


# PA-RL


def top(values, k: int) -> Array:
    """Indices [k, B] of the k greatest of values [N, B], best first; ties are not specified."""
    values = _f64(values)
    assert 0 < k <= len(values), (k, values.shape)
    return np.argsort(-values, axis=0, kind="stable")[:k]


def with_data(kept, action) -> Array:
    """[k, B, ...]: kept plans, best first, with the worst given up for the data's [B, ...].

    The released code does so before the ascent, and only when it makes targets to distil.
    """
    return np.concatenate([_f64(kept)[:-1], _f64(action)[None]])


def ascended(value, gradient, plans, low, high, step: float, count: int) -> tuple[Array, Array]:
    """(plans [N, ...], values): per plan the best of `count` + 1 iterates, the start one of them.

    Each step is a + step * gradient(a), clipped; the start is not. value(plans) has the leading
    axes of plans, [N] or [N, B]; of equal values the later iterate is taken.
    """
    now = best = _f64(plans)
    most = _f64(value(best))
    for _ in range(count):
        now = _clip(now + step * _f64(gradient(now)), low, high)
        after = _f64(value(now))
        better = after >= most
        best = np.where(better.reshape(better.shape + (1,) * (now.ndim - better.ndim)), now, best)
        most = np.where(better, after, most)
    return best, most


def softmax_weights(values, temperature: float = 1.0) -> Array:
    """[N, B]: exp(values / temperature) over its sum over N, values [N, B]."""
    share = np.exp((_f64(values) - np.max(_f64(values), axis=0)) / temperature)
    return share / np.sum(share, axis=0)


# IDQL


def _expectile(q, v, tau: float) -> Array:
    return np.where(_f64(q) > _f64(v), tau, 1.0 - tau)


def expectile_loss(q, v, tau: float) -> float:
    """mean_B |tau - 1(q <= v)| (q - v)^2; q [B] is the least of the target critics."""
    q, v = _f64(q), _f64(v)
    assert q.shape == v.shape, (q.shape, v.shape)
    return float(np.mean(_expectile(q, v, tau) * (q - v) ** 2))


def implicit_weights(q, v, tau: float) -> Array:
    """[N, B]: chances of N actions of the data's policy, q [N, B] and v [B]; tau if q > v, 1 - tau
    if not, over the sum over N."""
    return (weight := _expectile(q, v, tau)) / np.sum(weight, axis=0)


def value_target(reward, discount, v_next) -> Array:
    """y [B] = R + D v(s'), the value net itself, not a slow copy; D is 0 where s' is terminal."""
    return _f64(reward) + _f64(discount) * _f64(v_next)


# QAM


def qam_std(t, steps: int) -> Array:
    """sigma(t) = sqrt(2 (1 - t + h) / (t + h)), t's shape: memoryless, shifted by h = 1 / K."""
    h = 1.0 / steps
    return np.sqrt(2.0 * (1.0 - _f64(t) + h) / (_f64(t) + h))


def qam_path(velocity: Field, velocity_beta: Field, noise0, noises, steps: int) -> Array:
    """States [K + 1, B, D] from noise0 [B, D]; noises [K - 1, B, D] (a K-th is not looked at).

    x + h (2 f(x, t) - x / (t + h)) + sqrt(h) sigma(t) noise, the last x + h f_beta; no clip.
    """
    h, states, noises = 1.0 / steps, [_f64(noise0)], _f64(noises)
    assert len(noises) in (steps - 1, steps), noises.shape
    for i in range(steps - 1):
        x, t = states[-1], i / steps
        drift = 2.0 * _f64(velocity(x, np.full(len(x), t))) - x / (t + h)
        states.append(x + h * drift + np.sqrt(h) * qam_std(t, steps) * noises[i])
    last = np.full(len(states[-1]), (steps - 1) / steps)
    states.append(states[-1] + h * _f64(velocity_beta(states[-1], last)))
    return np.stack(states)


def qam_terminal(gradient, action, inverse_temperature: float, low, high) -> Array:
    """g_K [B, D] = -(inverse temperature) d/da Q(clip(a)): 0 where a, the last state, is outside.

    gradient(a) is that of the mean of the target critics, asked at the clipped action.
    """
    action = _f64(action)
    inside = (action > _f64(low)) & (action < _f64(high))
    return -inverse_temperature * _f64(gradient(_clip(action, low, high))) * inside


def qam_adjoints(vjp_beta, states, terminal, steps: int) -> Array:
    """g [K + 1, B, D], g_K = terminal: g_i = g_i+1 + h J_i^T g_i+1, back from the last step to 0.

    J_i is that of 2 f_beta(x, t_i + h) - x / (t_i + h) in x, at state i: one h later than the path
    asked its own velocity, and at the last step too, though the path's was the plain flow.
    vjp_beta(x, t, g) [B, D] is g^T (d f_beta / dx).
    """
    adjoints = [_f64(terminal)]
    for i in reversed(range(steps)):
        late, g = (i + 1) / steps, adjoints[0]
        pulled = 2.0 * _f64(vjp_beta(_f64(states[i]), np.full(len(g), late), g)) - g / late
        adjoints.insert(0, g + pulled / steps)
    return np.stack(adjoints)


def qam_loss(velocity_values, beta_values, states, adjoints, steps: int) -> float:
    """mean_B sum_K sum_D (2 (f - f_beta) / sigma(t_i) + sigma(t_i) g_i)^2; both [K, B, D].

    They are of (x_i, t_i), i < K; states and adjoints [K + 1, B, D] are constants, g_K is not used.
    """
    change, g = _f64(velocity_values) - _f64(beta_values), _f64(adjoints)[:-1]
    assert change.shape == g.shape == _f64(states)[:-1].shape, (change.shape, g.shape)
    std = qam_std(np.arange(steps) / steps, steps)[:, None, None]
    return float(np.mean(np.sum((2.0 * change / std + std * g) ** 2, axis=(0, 2))))


def clip_global(arrays: Sequence, limit: float) -> list[Array]:
    """All scaled by limit / norm if the norm of all of them together is over the limit.

    Of the gradient in the parameters of all nets, critics' and actors' in one; not of adjoints.
    """
    norm = np.sqrt(sum(float(np.sum(_f64(a) ** 2)) for a in arrays))
    return [_f64(a) * (limit / norm if norm > limit else 1.0) for a in arrays]


# DOIT: x = alpha clean + sigma noise, `now` and `after` are (alpha, sigma) of two following times


def doit_std(now, after, eta: float) -> float:
    """Of the reverse step: eta (sigma' / sigma) sqrt(sigma^2 - (alpha sigma' / alpha')^2)."""
    (alpha, sigma), (later, less) = now, after
    return float(eta * less / sigma * np.sqrt(sigma**2 - (alpha * less / later) ** 2))


def doit_mean(x, eps, now, after, std: float) -> Array:
    """alpha' (x - sigma eps) / alpha + sqrt(sigma'^2 - std^2) eps [B, D]: DDIM's."""
    (alpha, sigma), (later, less) = now, after
    x, eps = _f64(x), _f64(eps)
    return later * (x - sigma * eps) / alpha + np.sqrt(less**2 - std**2) * eps


def doit_weights(rewards, temperature: float, standardise: bool = True) -> Array:
    """[M, B]: softmax over M of rewards / temperature; first (r - mean_M) / (population std)."""
    rewards = _f64(rewards)
    if standardise:
        rewards = (rewards - np.mean(rewards, axis=0)) / np.maximum(np.std(rewards, axis=0), 1e-12)
    return softmax_weights(rewards, temperature)


def doit_step(nets, x, noises, fresh, times, how: tuple[float, float], predict=None) -> Array:
    """x' [B, D], a guided reverse step: the mean of a corrected epsilon, and fresh noise [B, D].

    Proposals are mean + std z, z = noises [M, B, D]. The gradient of log h is J^T sum_m w_m z_m /
    std, J that of the mean in x, and eps - gain sigma gradient is put where eps was: the result is
    no weighted mean of proposals. nets are epsilon, vjp, reward, weigh; times now, after; how eta,
    gain. epsilon(x) [B, D] is of time `now`, vjp(x, g) is g^T (d epsilon /
    dx), reward(a) [B], weigh doit_weights with a temperature, predict(x') a proposal's clean
    action; without it the epsilon of x serves, as in the released code.
    """
    (epsilon, vjp, reward, weigh), (now, after), (eta, gain) = nets, times, how
    (alpha, sigma), (later, less), x = now, after, _f64(x)
    std, eps, noises = doit_std(now, after, eta), _f64(epsilon(x)), _f64(noises)
    proposals = doit_mean(x, eps, now, after, std) + std * noises
    predict = predict or (lambda proposal: (proposal - less * eps) / later)
    rewards = np.stack([_f64(reward(predict(proposal))) for proposal in proposals])
    pull = np.sum(_f64(weigh(rewards))[:, :, None] * noises, axis=0) / std
    slope = np.sqrt(less**2 - std**2) - later * sigma / alpha
    grad = later / alpha * pull + slope * _f64(vjp(x, pull))
    return doit_mean(x, eps - gain * sigma * grad, now, after, std) + std * _f64(fresh)


# CDSA


def flow_score(velocity: Field, action, t: float) -> Array:
    """[B, D]: t^2 (f(t a, t) - a) / (1 - t), d/da log density of data + ((1 - t) / t) noise."""
    action = _f64(action)
    return t**2 * (_f64(velocity(t * action, np.full(len(action), t))) - action) / (1.0 - t)


def cdsa(score, action, size: float, count: int, low, high) -> Array:
    """[B, D]: `count` steps a + size score(a), each clipped. No noise is added.

    The paper's second aid, a pull of the state by an inverse dynamics model, is left out.
    """
    action = _f64(action)
    for _ in range(count):
        action = _clip(action + size * _f64(score(action)), low, high)
    return action
