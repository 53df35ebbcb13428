"""CrossQ's and SimbaV2's networks and losses in float64 numpy: slow, and meant to be read.

Sources, each read in its repository:
- CrossQ: Bhatt et al., ICLR 2024, arXiv:1902.05605; adityab/CrossQ, sbx/sac/policies.py
  (BatchRenorm, Critic, Actor), sbx/sac/sac.py (update_critic, update_actor), train.py.
- SimbaV2: Lee et al. 2025, arXiv:2502.15280; DAVIAN-Robotics/SimbaV2,
  scale_rl/agents/simbaV2/simbaV2_{network,layer,update}.py, scale_rl/agents/wrappers/.

The layers are those of networks.py, the categorical heads those of heads.py.

Shapes: B examples, E critics, O observation and A action numbers, L linear maps, K atoms. A CrossQ
network is (layers, affine, stats), three lists of length L: (kernel, bias) of the linear maps,
(scale, bias) of the BatchRenorm in front of each, and that one's (mean, var, passes): its running
statistics and the number of its train-mode passes so far.
"""

import numpy as np

from tests.oracles import heads, networks, offpolicy


def _f64(x):
    return np.asarray(x, dtype=np.float64)


def forward(x, net, *, train, warm=100_000, momentum=0.99, form="crossq", factors=None):
    """(y [B, F], stats, factors): BatchRenorm -> Dense, then ReLU -> BatchRenorm -> Dense each.

    - eval: the running statistics normalise; stats come back as they were, factors is None.
    - train: the batch's statistics normalise. From pass `warm` on (the first being pass 0) they
      are corrected by (r, d), r in [1/3, 3], d in [-5, 5], computed from the running statistics
      as they were BEFORE this pass; earlier r = 1 and d = 0, plain batch norm.

    stats are the new ones: each mean and variance is 0.99 old + 0.01 the batch's uncorrected one,
    and each layer counts its own passes. `factors`, one (r, d) per layer, replaces the computed
    ones: a gradient takes r and d as constants, but not the batch's statistics. `form` is that of
    networks.batch_renorm: "crossq" is the repository's, and drops d where a feature does not vary
    in the batch (a ReLU unit that is silent on all of it), where "paper" returns d.
    """
    layers, affine, stats = net
    assert len(layers) == len(affine) == len(stats)
    h, new_stats, used = _f64(x), [], []
    for depth, (kernel, bias) in enumerate(layers):
        mean, var, passes = stats[depth]
        if not train:
            h = networks.batch_renorm(h, (mean, var), affine[depth], train=False)
        else:
            if factors is not None:
                pair = factors[depth]
            elif passes >= warm:
                pair = networks.renorm_factors(h, (mean, var), (3.0, 5.0))
            else:
                pair = np.ones(h.shape[1]), np.zeros(h.shape[1])
            used.append(pair)
            new_stats.append((*networks.running_update(h, (mean, var), momentum), passes + 1))
            kw = {"train": True, "form": form, "factors": pair}
            h = networks.batch_renorm(h, (mean, var), affine[depth], **kw)
        h = h @ _f64(kernel) + _f64(bias)
        if depth < len(layers) - 1:
            h = np.maximum(h, 0.0)
    return (h, new_stats, used) if train else (h, list(stats), None)


def actor_forward(observation, net, *, train, **options):
    """(mean [B, A], log std [B, A], stats): the last map gives 2A numbers, the mean's first.

    The raw log std is clipped to [-20, 2]. In the repository the actor runs in train mode in its
    own loss and nowhere else: its statistics and passes advance once per ACTOR update, on B rows,
    and the next action of the critic's loss comes from eval mode.
    """
    y, stats, _ = forward(observation, net, train=train, **options)
    mean, raw = np.split(y, 2, axis=1)
    return mean, np.clip(raw, -20.0, 2.0), stats


def critic_loss(nets, batch, *, alpha, still=None, **options):
    """(loss, q [E, B], target [B], stats of each critic).

    ONE train-mode pass per critic over the 2B rows [(s, a); (s', a')]: q is the first half, q' the
    second. y = r + discount (min over critics q' - alpha log pi(a'|s')), and the loss the SUM over
    critics of mean (q - y)^2 / 2. (For two critics that is the mean over both, without the half.)

    batch: observation, next_observation [B, O], action, next_action [B, A], and reward, discount,
    next_logp [B]. A gradient takes y, r and d as constants, and nothing else: q depends on the
    next half too, through the batch's statistics. `still` holds the critics that give these
    constants, by default `nets`: held at the critics before a perturbation, it makes a finite
    difference in `nets` the gradient.
    """
    rows = len(batch["observation"])
    here = np.concatenate([_f64(batch["observation"]), _f64(batch["action"])], axis=1)
    there = np.concatenate([_f64(batch["next_observation"]), _f64(batch["next_action"])], axis=1)
    joint = np.concatenate([here, there], axis=0)
    held = [forward(joint, net, train=True, **options) for net in (still or nets)]
    next_q = np.stack([y[rows:, 0] for y, _, _ in held])
    logp = batch["next_logp"]
    kw = {"next_logp": logp, "alpha": alpha, "entropy": True}
    target = offpolicy.sac_target(batch["reward"], batch["discount"], next_q, **kw)
    now = []
    for net, (_, _, factors) in zip(nets, held, strict=True):
        now.append(forward(joint, net, train=True, factors=factors, **options))
    q = np.stack([y[:rows, 0] for y, _, _ in now])
    return 0.5 * offpolicy.td3_critic_loss(q, target), q, target, [stats for _, stats, _ in now]


def actor_loss(nets, observation, action, logp, alpha):
    """mean(alpha log pi(a|s) - min over critics Q(s, a)), the critics in eval mode.

    They are the critics as just updated, running statistics included, and are not changed.
    """
    x = np.concatenate([_f64(observation), _f64(action)], axis=1)
    q = np.stack([forward(x, net, train=False)[0][:, 0] for net in nets])
    return offpolicy.sac_actor_loss(q, logp, alpha, "min")


def _simba_trunk(x, embed, blocks):
    """embed = (kernel, scale) of simba_embed; blocks = (kernels, scale, alpha) of simba_block."""
    h = networks.simba_embed(x, *embed)
    for kernels, scale, alpha in blocks:
        h = networks.simba_block(h, kernels, scale, alpha)
    return h


def simba_critic(observation, action, embed, blocks, head):
    """Logits [B, K] of one critic at [s, a]; head = (kernels, scale, bias) of simba_head."""
    x = np.concatenate([_f64(observation), _f64(action)], axis=1)
    return networks.simba_head(_simba_trunk(x, embed, blocks), *head)


def simba_actor(observation, embed, blocks, mean_head, std_head):
    """(mean [B, A], log std [B, A]) of the normal distribution under the tanh."""
    h = _simba_trunk(_f64(observation), embed, blocks)
    raw = networks.simba_head(h, *std_head)
    return networks.simba_head(h, *mean_head), networks.simba_log_std(raw)


def c51_target(logits, low, high, how):
    """Probabilities [B, K] to be projected, of the target critics' logits [E, B, K].

    "min": per example, those of the member with the lowest mean BEFORE reward, discount and
    projection; the first of equals. The repository does this with two critics where the task can
    terminate (its critic_use_cdq), and elsewhere has ONE critic, whose distribution is the target.
    "mean": the average of the members' probabilities. With E = 1 that is the repository's
    other case; with more it is not in the repository.
    """
    logits = _f64(logits)
    members, batch, _ = logits.shape
    value = heads.c51_value(logits, low, high)
    out = np.zeros(logits.shape[1:])
    for i in range(batch):
        rows = []
        for e in range(members):
            weights = np.exp(logits[e, i] - max(logits[e, i]))
            rows.append(weights / sum(weights))
        lowest = list(value[:, i]).index(min(value[:, i]))
        out[i] = {"min": rows[lowest], "mean": sum(rows) / members}[how]
    return out


def simba_critic_loss(logits, next_logits, batch, low, high, *, alpha, how):
    """SUM over critics of the mean cross-entropy of logits [E, B, K] with the projected target.

    next_logits [E, B, K] are the target critics' at (s', a'); the bonus -alpha log pi(a'|s') joins
    every atom before the discount. batch: reward, discount, next_logp [B].
    """
    probs = c51_target(next_logits, low, high, how)
    kw = {"discount": batch["discount"], "bonus": -alpha * _f64(batch["next_logp"])}
    target = heads.c51_project(probs, low, high, batch["reward"], **kw)
    return sum(heads.cross_entropy(member, target).mean() for member in _f64(logits))


def simba_actor_loss(logits, low, high, logp, alpha, how):
    """mean(alpha log pi(a|s) - Q): Q is the "min" or the "mean" of the members' means.

    logits [E, B, K] are the online critics' at (s, a). "min" goes with two critics, and the
    repository's other case is one critic (see c51_target).
    """
    return offpolicy.sac_actor_loss(heads.c51_value(logits, low, high), logp, alpha, how)


def normalise_observation(x, mean, var, eps=1e-8):
    """(x - mean) / sqrt(var + eps), not clipped."""
    return (_f64(x) - _f64(mean)) / np.sqrt(_f64(var) + eps)
