"""A trained policy in plain NumPy: `policy(observation) -> action`, from what `Trainer.policy()` hands out."""

import numpy as np

from rcac.deep.forward import Actor, ActorShape, mode, noise, sample, softmax
from rcac.deep.spaces import actions_from_card, encoder_from_card, normalize
from rcac.errors import InputError
from rcac.learner import State


class Policy:
    """Acts on one observation (`policy(observation)`) or on a batch of them (`policy.batch(observations)`).

    What was trained and measured is the stochastic policy, and under constraints the best one may have to be; so that
    is the default. `deterministic` takes the likeliest action instead.
    """

    def __init__(self, state: State, deterministic: bool = False, seed: int = 0) -> None:
        card, tensors = state.data, state.tensors
        if card.get("kind") != "deep":
            raise InputError(f"kind: {card.get('kind')!r} given, 'deep' expected: this card is not of a deep policy")
        self.encoder = encoder_from_card(card["observation"])
        self.actions = actions_from_card(card["action"])
        network = card["network"]
        sizes = tuple(int(n) for n in network["sizes"])
        self.shape = ActorShape(sizes, self.actions.kind, self.actions.count, int(network["tail"]))
        self.parameters = np.asarray(tensors["actor"], dtype=np.float32)
        if self.parameters.shape != (self.shape.length,):
            raise InputError(f"actor: shape {self.parameters.shape} given, ({self.shape.length},) expected by the card")
        self.actor = Actor(self.shape, self.parameters)
        self.mean, self.deviation = tensors["observation_mean"], tensors["observation_deviation"]
        self.deterministic = deterministic
        self.rng = np.random.default_rng(seed)

    def batch(self, observations: np.ndarray) -> np.ndarray:
        """Actions (B, …) as the environment takes them, for raw observations (B, …)."""
        outputs = self._outputs(observations)
        if self.deterministic:
            return self.actions.raw(mode(self.shape, outputs))
        return self.actions.raw(sample(self.shape, outputs, noise(self.shape, self.rng, (len(outputs),))))

    def probabilities(self, observations: np.ndarray) -> np.ndarray:
        """(B, A) of discrete actions, for raw observations (B, …)."""
        return softmax(self._outputs(observations))

    def _outputs(self, observations: np.ndarray) -> np.ndarray:
        return self.actor.outputs(normalize(self.encoder(np.asarray(observations)), self.mean, self.deviation))

    def __call__(self, observation: np.ndarray | int) -> np.ndarray | int:
        action = self.batch(np.asarray(observation)[None])[0]
        return int(action) if self.actions.kind == "categorical" else action
