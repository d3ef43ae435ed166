"""From spaces and settings to networks, and from a policy's card back to its actor."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

from rcac import registry
from rcac.deep.critics import Critics
from rcac.deep.custom import name_of
from rcac.deep.distributions import Distribution, distribution
from rcac.deep.networks import Actor, Body, Preprocess, StandardBody, body_maker
from rcac.deep.resume import load_arrays
from rcac.deep.settings import DeepSettings
from rcac.deep.spaces import Actions, Encoder, History, action_codec
from rcac.errors import InputError
from rcac.spaces import LARGEST, space_card, space_from_card

# Settings that a card needs to build the actor again
SHAPE = ("actor_hidden", "activation", "layer_norm", "history", "gaussian_scale", "squash", "network")


class Interface(NamedTuple):
    """What lies between an environment and a network."""

    encoder: Encoder
    history: History
    actions: Actions


class Networks(NamedTuple):
    actor: Actor
    critics: Critics
    distribution: Distribution
    name: str | None  # of the registered network that the actor's body is; None: ours


def interface(observation: gym.Space, action: gym.Space, settings: DeepSettings) -> Interface:
    encoder, actions = Encoder(observation), action_codec(action, settings.squash)
    return Interface(encoder, History(settings.history, encoder.size, actions.features), actions)


def networks(
    between: Interface,
    settings: DeepSettings,
    costs: int,
    rng: np.random.Generator,
    actor: Any = None,
    critic: Any = None,
    context: int = 0,
) -> Networks:
    """The actor, then the critics one after the other: all draw from one generator. `context`: numbers of a context."""
    if settings.network is not None:
        if actor is not None:
            raise InputError(
                f"actor: {name_of(actor)} given with network {settings.network!r}, one of the two expected"
            )
        actor = registry.networks.get(settings.network)
    if settings.shared_body and critic is not None:
        raise InputError(f"critic: {name_of(critic)} given with shared_body, where the actor's is every critic's")
    critic = actor if critic is None else critic
    with _own_generator(int(rng.bit_generator.seed_seq.generate_state(1)[0])):
        made = _actor(between, settings, rng, actor)
        maker = body_maker(settings, settings.critic_hidden, rng, critic)
        preprocess = made.preprocess

        def bodies() -> Iterator[Body]:
            for _ in range(costs):
                yield made.body if settings.shared_body else maker(preprocess)

        critics = Critics(preprocess, bodies(), rng, context)
    name = settings.network or (None if actor is None else name_of(actor))
    return Networks(made, critics, distribution(between.actions), name)


@contextlib.contextmanager
def _own_generator(seed: int) -> Iterator[None]:
    """For bodies that draw from torch's own generator, which is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _actor(between: Interface, settings: DeepSettings, rng: np.random.Generator, custom: Any) -> Actor:
    preprocess, law = Preprocess(between.encoder, between.history), distribution(between.actions)
    body = body_maker(settings, settings.actor_hidden, rng, custom)(preprocess)
    dependent = settings.gaussian_scale == "dependent"
    return Actor(preprocess, body, law, rng, settings.initial_log_std, dependent)


# Cards


def card(between: Interface, settings: DeepSettings, name: str | None) -> dict[str, Any]:
    """All that it takes to act with an actor's arrays."""
    spaces = {"observation": space_card(between.encoder.space), "action": space_card(between.actions.space)}
    shape = {key: getattr(settings, key) for key in SHAPE} | {"network": name}
    return {"kind": "deep", "spaces": spaces, "network": shape}


def check_tensors(tensors: dict[str, np.ndarray]) -> None:
    """Refuse weights that are not finite, and a zero std of observations."""
    for name, array in tensors.items():
        with np.errstate(over="ignore"):
            finite = np.isfinite(array.astype(np.float32)).all()  # as the network holds it
        if not finite:
            raise InputError(f"{name}: weights that are not finite given, finite numbers expected")
    if "preprocess.std" in tensors and not (tensors["preprocess.std"] > 0).all():
        raise InputError("preprocess.std: 0 or less given, positive numbers expected")


def _check_sizes(between: Interface, settings: DeepSettings, tensors: dict[str, np.ndarray]) -> None:
    """Hold what a card says about our network against the arrays, before memory is asked for."""
    inputs, widths, given = between.history.size, settings.actor_hidden, sum(array.size for array in tensors.values())
    if inputs > LARGEST or len(widths) > len(tensors) or max([*widths, 1]) > given:
        raise InputError(f"network: {inputs} inputs, layers {str(widths)[:60]} given, {given} numbers found")
    preprocess = Preprocess(between.encoder, between.history)
    with torch.device("meta"):  # shapes alone
        body = StandardBody(preprocess.inputs, preprocess.structured, widths, settings.activation, settings.layer_norm)
    needed = {f"body.{name}": tuple(tensor.shape) for name, tensor in body.state_dict().items()}
    needed["head.weight"] = (
        distribution(between.actions).outputs - tensors.get("log_std", np.zeros(0)).size,
        body.out_features,
    )
    for name, shape in needed.items():
        found = tensors[name].shape if name in tensors else None
        if found != shape:
            raise InputError(f"{name}: shape {found} given, {shape} expected by the network")


def actor_from_card(
    card: dict[str, Any], tensors: dict[str, np.ndarray], network: Any = None
) -> tuple[Interface, Actor]:
    """The actor with its arrays. `network` is its body's class or function, when it is not a registered one."""
    settings = DeepSettings(**card["network"])
    observation, action = (space_from_card(card["spaces"][name]) for name in ("observation", "action"))
    between = interface(observation, action, settings)
    if settings.network is None and network is None:
        _check_sizes(between, settings, tensors)
    if settings.network is not None and network is None:
        try:
            network = registry.networks.get(settings.network)
        except InputError as error:
            raise InputError(f"{error}, or load_policy(…, network=…) with its class") from None
    with _own_generator(0):
        actor = _actor(between, settings, np.random.default_rng(0), network)
    check_tensors(tensors)
    load_arrays(actor, tensors)
    return between, actor
