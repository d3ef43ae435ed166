"""Training does not depend on the device: on a stand-in for a GPU, every method does what it does on the CPU.

The stand-in keeps its tensors in host memory but marks them, and refuses what a GPU would refuse: reading a marked tensor
as a NumPy array without `.cpu()`, and mixing tensors of both places in one operation. It also refuses what torch would move
by itself: numbers (tensors without dimensions) and indices. Moving always copies.
"""

import numpy as np
import pytest
import torch
from deep.test_trainer import ALGORITHMS, TINY, Line, cartpole, row
from gymnasium.vector import SyncVectorEnv
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map_only

from rcac.deep import critics, resume
from rcac.deep.trainer import Trainer
from rcac.errors import InputError

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SYNCHRONISING = (
    Tensor.item,
    Tensor.__float__,
    Tensor.__bool__,
    Tensor.__int__,
    Tensor.tolist,
    Tensor.nonzero,
    Tensor.cpu,
)
HOST_ONLY = (Tensor.numpy, Tensor.__array__, Tensor.__dlpack__)


class StandIn(TorchFunctionMode):
    """While active, "cuda" is a place of its own. Counts copies between the places, and reads that wait for the device."""

    def __init__(self):
        super().__init__()
        self.copied = self.synchronised = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        given = args[:1] if function == Tensor.__deepcopy__ else (args, kwargs)  # its memo holds what was copied before
        places = {place(x) for x in tree_flatten(given)[0] if isinstance(x, Tensor)}
        if function == Tensor.device.__get__:
            return place(args[0])
        if function in HOST_ONLY and CUDA in places:
            raise TypeError("can't convert cuda device type tensor to numpy. Use Tensor.cpu() first")
        if function == torch._has_compatible_shallow_copy_type:  # how a module moves its parameters
            return True
        if function == Tensor.data.__set__:
            placed(args[0], place(args[1]))
            return function(*args, **kwargs)
        if function in SYNCHRONISING and CUDA in places:
            self.synchronised += 1
        if len(places) > 1:
            raise RuntimeError(f"expected all tensors to be on the same device, found both in {function.__name__}")
        here = places.pop() if places else CPU
        target = here
        if function == Tensor.cpu:
            target = CPU
        elif function == Tensor.to:
            args, target = args[:1] + tuple(CPU if is_device(x) else x for x in args[1:]), asked(args[1:], here)
        if kwargs.get("device") is not None:
            target = torch.device(kwargs["device"])
            kwargs["device"] = CPU
        result = function(*args, **kwargs)
        moved = target != here  # as_tensor, to and cpu would share memory with what they were given
        self.copied += moved
        return tree_map_only(Tensor, lambda x: placed(x.clone() if moved else x, target), result)


def place(tensor):
    return getattr(tensor, "place", CPU)


def placed(tensor, device):
    if device != place(tensor):
        tensor.place = device
    return tensor


def is_device(x):
    return isinstance(x, torch.device) or x in ("cpu", "cuda")


def asked(args, default):
    return next((torch.device(x) for x in args if is_device(x)), default)


@pytest.fixture
def gpu(monkeypatch):
    """A machine that has a GPU, as far as `device: auto` can see."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with StandIn() as device:
        yield device


def make(name, env="cartpole", **changes):
    envs, budgets = (cartpole(), [200.0]) if env == "cartpole" else (SyncVectorEnv([Line] * 4), [2.0, 1.0])
    horizon = 500 if env == "cartpole" else 20
    settings = row(name, **{**TINY, "rollout_length": 32, "fisher_states": 40, "total_steps": 3 * 128, **changes})
    return Trainer(envs, budgets, settings, 0, horizon)


def played(trainer, again=None):
    """Metrics of a whole run, its summary and its policy; `again` takes over after an update."""
    metrics = [trainer.step().metrics]
    if again is not None:
        again.load(trainer.state())
        trainer = again
    while not trainer.finished:
        metrics.append(trainer.step().metrics)
    return [{k: v for k, v in m.items() if not k.startswith("time/")} for m in metrics], trainer.policy(), trainer


def same(one, two):
    for mine, theirs in zip(one[0], two[0], strict=True):
        assert mine.keys() == theirs.keys()
        np.testing.assert_allclose(list(mine.values()), list(theirs.values()), rtol=1e-3, atol=1e-5)
    for name, tensor in two[1].tensors.items():
        np.testing.assert_allclose(one[1].tensors[name], tensor, rtol=1e-3, atol=1e-5)


VARIANTS = [
    {"advantage": "q_regression"},
    {"scope": "all", "critics": "selected", "entropy": 0.01},
    {"env": "line", "gaussian_scale": "dependent"},
    {"env": "line", "advantage": "q_regression", "total_steps": 480, "trials": 1},
]


METHODS = [
    *((name, {}) for name in ALGORITHMS),
    *((name, changes) for changes in VARIANTS for name in ("rcac", "rcac_npg", "rcac_sqp")),  # a method of each step
]


@pytest.mark.parametrize(("name", "changes"), METHODS)
def test_every_method_trains_on_a_device_as_on_the_cpu(name, changes, gpu):
    away = make(name, **changes)
    assert away.device == CUDA
    one = played(away, again=make(name, **changes))
    last = one[2]
    weights = [*last.actor.parameters(), *last.actor.buffers(), *last.critics.parameters(), *last.critics.buffers()]
    for optimizer in (last.actor_optimizer, last.critic_optimizer):
        weights += [x for row in optimizer.state.values() for x in row.values()]
    assert {place(tensor) for tensor in weights} == {CUDA}
    at_home = make(name, device="cpu", **changes)
    two = played(at_home, again=make(name, device="cpu", **changes))
    assert {place(x) for x in two[2].actor.parameters()} == {CPU}
    same(one, two)


def test_the_rows_here_are_all_steps_and_switches():
    rows = [row(name) for name in ALGORITHMS]
    assert {each.step for each in rows} == {"gradient", "natural", "sqp"}
    assert {each.switch for each in rows} == {"soft_surrogate", "crpo", "epigraph", "lagrangian"}


@pytest.mark.parametrize("name", ["rcac", "rcac_npg"])
def test_no_minibatch_copies_or_waits(name, gpu):
    """Four times as many minibatches, and as many copies and reads as before."""
    counts = []
    for batch in (64, 16):
        trainer = make(name, actor_batch=batch, critic_batch=batch)
        trainer.step()
        gpu.copied = gpu.synchronised = 0
        trainer.step()
        counts.append((gpu.copied, gpu.synchronised))
    assert counts[0] == counts[1]
    assert counts[0][0] > 0


# What the stand-in finds


def hidden_read(self, scope):
    return self.scales.detach().numpy()


def read_as_array(tensor):
    return np.asarray(tensor.detach())


def without_device(self, array):
    return torch.tensor(np.asarray(array), dtype=torch.float32)


@pytest.mark.parametrize(
    ("target", "name", "mistake", "message"),
    [
        (critics.Critics, "norms", hidden_read, "to numpy"),
        (resume, "array", read_as_array, "to numpy"),
        (Trainer, "tensor", without_device, "same device"),
        (torch, "zeros_like", lambda x, **options: torch.zeros(x.shape, **options), "same device"),
    ],
)
def test_a_mistake_that_only_a_device_would_show_is_found(gpu, monkeypatch, target, name, mistake, message):
    trainer = make("rcac_npg")
    monkeypatch.setattr(target, name, mistake)
    with pytest.raises((TypeError, RuntimeError), match=message):
        played(trainer, again=make("rcac_npg"))


def test_the_stand_in_refuses_and_allows_what_a_device_does(gpu):
    away, home = torch.ones(3, device="cuda"), torch.ones(3)
    for wrong in (away.numpy, lambda: np.asarray(away), lambda: np.sqrt(away), lambda: away[:2].numpy()):
        with pytest.raises(TypeError, match="to numpy"):
            wrong()
    for wrong in (
        lambda: away + home,
        lambda: torch.stack([home, away]),
        lambda: away.copy_(home),
        lambda: torch.where(away > 0, away, home),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            wrong()
    assert float(away.sum()) == away.sum().item() == 3.0
    assert bool((away == 1).all())
    assert away.tolist() == [1.0] * 3
    assert (2 * away + home.to(away.device)).device == CUDA
    assert (
        torch.zeros_like(away).device
        == away.new_zeros(2).device
        == torch.as_tensor(np.ones(2), device=CUDA).device
        == CUDA
    )
    array = away.cpu().numpy()
    array[:] = 5.0
    assert float(away.sum()) == 3.0  # what came from the device is a copy
    assert home.device == CPU


@pytest.mark.parametrize("device", ["cuda", "meta", "cuda:7", "abacus"])
def test_a_device_that_is_not_there_is_refused(device):
    if device.startswith("cuda") and torch.cuda.is_available():
        device = "cuda:99"
    with pytest.raises(InputError, match=f"device: '{device}' given, auto, cpu, cuda or cuda:<number> expected"):
        make("rcac", device=device)
