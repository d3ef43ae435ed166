"""RSQP's step, apart from the search around it."""

from types import SimpleNamespace

import numpy as np
import pytest

from rcac.tabular.rsqp import GAINED, SequentialPolicy
from rcac.uncertainty import Nominal


@pytest.mark.parametrize(("share", "accepted"), [(0.9, False), (1.1, True)])
def test_a_step_is_accepted_for_its_share_of_what_was_promised(monkeypatch, share, accepted):
    monkeypatch.setattr(SequentialPolicy, "uses_bundle", lambda *_: False)
    step = SequentialPolicy(np.array([5.0]), 1e-6, 0.0, Nominal(), trust=1.0, first=1.0)
    step.promised, step.distance, step.predicted = 2.0, 1.0, np.array([8.0, 4.0])

    def evaluated(objective: float) -> SimpleNamespace:
        returns = np.array([objective, 4.0])
        return SimpleNamespace(returns=returns, error_bounds=np.zeros(2), policy=np.array([[objective]]))

    assert step.accept(evaluated(10.0), evaluated(10.0 - share * GAINED * 2.0)) is accepted
    assert step.trust == (4.0 if accepted else 0.25)
