"""The policy-gradient step: Adam on minibatches of the clipped surrogate, several passes over a batch (as PPO does).

    minimise  E[ max( r·A, clip(r, 1−ε, 1+ε)·A ) ] − η·entropy,      r = π/π_old,  A in cost form

One pass in one minibatch, with clip 0, is the plain policy gradient.
"""

import torch
from torch import Tensor

from rcac.deep import networks
from rcac.deep.adam import Adam
from rcac.deep.passes import Networks
from rcac.deep.update import Taken, Task, chosen_advantage, finite


def clipped_pull(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The slope in log π of max(r·A, clip(r)·A): r·A, or 0 where a sample already went the right way beyond 1±ε."""
    pull = ratio * advantage
    if clip:
        pull *= ratio.clamp(1 - clip, 1 + clip) * advantage <= pull
    return pull


def gradient_step(task: Task, adam: Adam) -> Taken:
    settings, batch, shape = task.settings, task.batch, task.shape
    old = networks.actor_outputs(shape, task.parameters, batch.observations)
    samples = (
        batch.observations,
        batch.actions,
        networks.log_prob(shape, old, batch.actions),
        chosen_advantage(task),
    )
    parameters = task.parameters.clone()[None]  # one row, changed in place
    actor = Networks(parameters, shape.sizes, shape.tail)
    for _ in range(settings.actor_epochs):
        order = torch.from_numpy(task.rng.permutation(len(batch.observations))).to(old.device)
        parts = (sample[order].split(settings.actor_batch) for sample in samples)
        for observations, actions, old_logs, advantage in zip(*parts, strict=True):
            here = actor.at(observations)
            outputs = here.outputs[0]
            ratio = torch.exp(networks.log_prob(shape, outputs, actions) - old_logs)
            slope = networks.score(shape, outputs, actions) * clipped_pull(ratio, advantage, settings.clip)
            if settings.entropy:
                slope -= settings.entropy * networks.entropy_slope(shape, outputs)
            gradient = here.backward(slope[None] / len(actions))
            length = float(torch.linalg.vector_norm(gradient))
            if length > settings.max_grad_norm:
                gradient *= settings.max_grad_norm / length
            adam.step(parameters, gradient, settings.actor_lr * task.rate)
    finite(parameters, "the actor's gradient")  # Adam hands on what is not
    new = networks.actor_outputs(shape, parameters[0], batch.observations)
    kl, entropy = networks.kl(shape, old, new).mean(), networks.entropy(shape, new).mean()
    return Taken(parameters[0], False, float(finite(kl, "the actor's step")), float(entropy), False)
