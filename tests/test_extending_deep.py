"""One of each deep part from outside the package, as in docs/developing.md: network, switch, step, logger, metric.

The module registers its parts when it is imported; `rcac.train` finds them by name.
"""

import json
import sys

import pytest

from rcac import registry

EXTENSION = '''
import numpy as np
import torch

import rcac
from rcac.deep.steps.base import ActorUpdate
from rcac.runs.loggers import Logger
from rcac.switch import Switch


@rcac.register_network("wide")
class Wide(torch.nn.Sequential):
    """A body: from what it is given to `out_features`."""

    def __init__(self, space):
        super().__init__(torch.nn.Linear(space.shape[0], 32), torch.nn.ELU())
        self.out_features = 32


@rcac.register_switch("always_objective")
class AlwaysObjective(Switch):
    """Weight 1 on the objective, 0 on every constraint."""

    def __init__(self, settings):
        pass

    def weights(self, returns, budgets):
        return np.eye(len(returns))[0]

    def merit(self, returns, budgets):
        return (float(returns[0]),)


@rcac.register_step("no_step")
def no_step(inputs):
    """The actor stays as it is."""
    return ActorUpdate(skipped=False, kl=0.0, entropy=0.0)


@rcac.register_logger("rows")
class Rows(Logger):
    rows = []

    def __init__(self, run):
        pass

    def scalars(self, position, metrics):
        Rows.rows.append((position, dict(metrics)))
'''

USE = """
import my_extension
import numpy as np
import rcac

seen = []


def callback(update):
    seen.append(update.position)
    update.metrics["mine/updates"] = float(len(seen))


options = dict(budgets=[200.0], total_steps=1024, num_envs=4, rollout_length=32, seed=0)
train = lambda **more: rcac.train("rcac/NoisyCartPole-v0", **{**options, **more})
result = train(algo="cac", network="wide", callback=callback, loggers=["rows"], folder="run")
switched = train(algo="cac", switch="always_objective")
stepped = train(algo="cac", step="no_step")
again = rcac.load_policy("run", deterministic=True)
probe = np.zeros(4, np.float32)
found = {
    "updates": len(seen),
    "mine": [row["mine/updates"] for _, row in my_extension.Rows.rows if "mine/updates" in row],
    "network": again.card["network"],
    "probabilities": [float(p) for p in again.probabilities(probe[None])[0] - result.policy.probabilities(probe[None])[0]],
    "indices": sorted(set(switched.history["switch/index"].tolist())),
    "kl": sorted(set(stepped.history["policy/kl"][np.isfinite(stepped.history["policy/kl"])].tolist())),
}
"""


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    (folder / "my_extension.py").write_text(EXTENSION)
    names: dict = {}
    with pytest.MonkeyPatch.context() as patch, registry.temporary():
        patch.syspath_prepend(folder)
        patch.chdir(folder)
        exec(compile(USE, "use.py", "exec"), names)
    sys.modules.pop("my_extension", None)
    return names["found"]


def test_a_network_is_trained_saved_by_its_name_and_loaded(used):
    assert "wide" in json.dumps(used["network"])
    assert used["probabilities"] == [0.0, 0.0]


def test_a_switch_says_what_is_descended_and_a_step_how(used):
    assert used["indices"] == [0.0]
    assert used["kl"] == [0.0]


def test_a_metric_of_a_callback_reaches_a_logger(used):
    assert used["updates"] > 0
    assert used["mine"] == [float(k + 1) for k in range(used["updates"])]
