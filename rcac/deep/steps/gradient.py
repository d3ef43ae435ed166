"""The policy-gradient step: Adam on minibatches of the clipped surrogate, several passes over a batch (as PPO does).

    minimise  E[ max( r·A, clip(r, 1−ε, 1+ε)·A ) ] − η·entropy,      r = π/π_old,  A in cost form

One pass in one minibatch, with clip 0, is the plain policy gradient.
"""

import torch
from torch import Tensor

from rcac.deep.steps.base import CHUNK, ActorStepInputs, ActorUpdate, Flat, finite, minibatches, weighted_advantage


def clipped_loss(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """(B,) A sample that already went the right way beyond 1±ε has no slope."""
    pull = ratio * advantage
    return torch.maximum(pull, ratio.clamp(1 - clip, 1 + clip) * advantage) if clip else pull


def gradient_step(inputs: ActorStepInputs) -> ActorUpdate:
    settings, law, actor = inputs.settings, inputs.distribution, inputs.actor
    rows, actions, advantage = inputs.batch.observations, inputs.batch.actions, weighted_advantage(inputs)
    old = _outputs(inputs)
    old_logs = law.log_prob(old, actions)
    parameters = Flat(actor).tensors
    for group in inputs.optimizer.param_groups:
        group["lr"] = settings.actor_lr * inputs.rate
    for _ in range(settings.actor_epochs):
        samples = minibatches(settings.actor_batch, inputs.rng, rows, actions, old_logs, advantage)
        for states, taken, logs, pull in samples:
            outputs = actor(states)
            ratio = torch.exp(law.log_prob(outputs, taken) - logs)
            loss = clipped_loss(ratio, pull, settings.clip).mean()
            if settings.entropy:
                loss = loss - settings.entropy * law.entropy(outputs).mean()
            inputs.optimizer.zero_grad()
            loss.backward()
            _shorten([p.grad for p in parameters if p.grad is not None], settings.max_grad_norm)
            inputs.optimizer.step()
    finite(Flat(actor).get(), "the actor's gradient")  # Adam hands on what is not
    new = _outputs(inputs)
    kl = finite(law.kl(old, new).mean(), "the actor's step")
    return ActorUpdate(False, float(kl), float(law.entropy(new).mean()))


def _shorten(slopes: list[Tensor], length: float) -> None:
    """To a joint length of at most this, without waiting for the device."""
    norm = torch.linalg.vector_norm(torch.cat([slope.flatten() for slope in slopes]))
    factor = (length / (norm + 1e-6)).clamp(max=1.0)
    for slope in slopes:
        slope.mul_(factor)


def _outputs(inputs: ActorStepInputs) -> Tensor:
    with torch.no_grad():
        return torch.cat([inputs.actor(part) for part in inputs.batch.observations.split(CHUNK)])
