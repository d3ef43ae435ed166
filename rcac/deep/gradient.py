"""The policy-gradient step: Adam on minibatches of the clipped surrogate, several passes over a batch (as PPO does).

    minimise  E[ max( r·A, clip(r, 1−ε, 1+ε)·A ) ] − η·entropy,      r = π/π_old,  A in cost form

One pass in one minibatch, with clip 0, is the plain policy gradient.
"""

import torch
from torch import Tensor

from rcac.deep import networks
from rcac.deep.adam import Adam
from rcac.deep.update import Taken, Task, chosen_advantage, finite


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """Mean of the clipped surrogate of a cost: beyond 1±ε a sample that already went the right way stops pulling."""
    loss = ratio * advantage
    if clip:
        loss = torch.maximum(loss, ratio.clamp(1 - clip, 1 + clip) * advantage)
    return loss.mean()


def gradient_step(task: Task, adam: Adam) -> Taken:
    settings, batch, shape = task.settings, task.batch, task.shape
    advantage = chosen_advantage(task)
    with torch.no_grad():
        old = networks.actor_outputs(shape, task.parameters, batch.observations)
        old_logs = networks.log_prob(shape, old, batch.actions)
    parameters = task.parameters.clone()[None]  # one row
    count = len(old)
    for _ in range(settings.actor_epochs):
        order = torch.from_numpy(task.rng.permutation(count)).to(old.device)
        for rows in order.split(settings.actor_batch):
            parameters.requires_grad_(True)
            outputs = networks.actor_outputs(shape, parameters[0], batch.observations[rows])
            ratio = torch.exp(networks.log_prob(shape, outputs, batch.actions[rows]) - old_logs[rows])
            loss = clipped_surrogate(ratio, advantage[rows], settings.clip)
            if settings.entropy:
                loss = loss - settings.entropy * networks.entropy(shape, outputs).mean()
            (gradient,) = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                gradient *= (settings.max_grad_norm / (gradient.norm() + 1e-12)).clamp(max=1.0)
                parameters = parameters.detach()
                adam.step(parameters, gradient, settings.actor_lr * task.rate)
    finite(parameters, "the actor's gradient")  # Adam hands on what is not
    with torch.no_grad():
        new = networks.actor_outputs(shape, parameters[0], batch.observations)
        kl, entropy = networks.kl(shape, old, new).mean(), networks.entropy(shape, new).mean()
    return Taken(parameters[0], False, float(finite(kl, "the actor's step")), float(entropy), False)
