"""Names: ours, those registered in code, and those that packages offer; each found when asked for."""

import re

import numpy as np
import pytest

import rcac
from rcac import registry
from rcac.config import help_text
from rcac.config.compose import compose
from rcac.deep.settings import DeepSettings
from rcac.errors import InputError
from rcac.tabular.settings import TabularSettings
from rcac.uncertainty import KLBall, TotalVariation, Wasserstein
from rcac.uncertainty.named import NAMED, complete_features, steps_between


def test_ours():
    assert {"rnpg", "rppg", "epirc_pgs", "robust_crpo", "primal_dual", "rsqp"} == set(registry.algorithms("tabular"))
    deep = {"rcac", "rcac_npg", "cac", "robust_crpo_deep", "epirc_pgs_deep", "rcac_sqp"}
    deep |= {"ppo_lagrangian", "trpo_lagrangian", "cpo"}
    assert deep == set(registry.algorithms("deep"))
    assert set(registry.rows("uncertainty")) == set(NAMED) == set(registry.uncertainty_names())
    assert registry.algorithm("rnpg", TabularSettings).step == "natural"
    assert registry.algorithm("cac", DeepSettings).radius == 0.0
    with pytest.raises(
        InputError, match="method: 'cac' given, one of epirc_pgs, primal_dual, rnpg, robust_crpo, rppg, rsqp expected"
    ):
        registry.algorithm("cac", TabularSettings)


def test_rows_are_copies():
    registry.rows("algo")["rnpg"]["step"] = "changed"
    registry.algorithm_row("rnpg")["step"] = "changed"
    assert registry.algorithm_row("rnpg")["step"] == "natural"


def test_an_algorithm_of_ones_own():
    @rcac.register_algo("mine")
    def mine():
        return {"family": "tabular", "switch": "crpo", "step": "projected", "tolerance": 0.5}

    assert registry.algorithm("mine", TabularSettings).tolerance == 0.5
    config = compose(["env=river_swim", "algo=mine", "algo.step_size=2"])
    assert (config.algo["step"], config.algo["tolerance"], config.algo["step_size"]) == ("projected", 0.5, 2.0)
    assert "mine" in registry.algorithms("tabular")
    problem = rcac.RCMDP(np.ones((1, 2, 1)), np.array([[[0.0, 1.0]], [[0.0, 0.0]]]), [1.0], [1.0], 0.5)
    assert rcac.solve(problem, "mine", iterations=20).policy[0, 0] > 0.99


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"family": "magic"}, "algo mine: family: 'magic' given, one of deep, tabular expected"),
        ({}, "algo mine: family: None given"),
        ({"family": "tabular", "stp": "natural"}, r"algo.stp: no such key, did you mean algo.step\?"),
        ({"family": "tabular", "lam": "x"}, "algo.lam: 'x' given, a number expected"),
        ("natural", "algo mine: 'natural' given, a row like"),
    ],
)
def test_a_bad_row(row, message):
    registry.register_algo("mine")(lambda: row)
    with pytest.raises(InputError, match=message):
        compose(["env=river_swim", "algo=mine"])


def test_a_set_of_ones_own():
    @rcac.register_uncertainty("shrinking")
    def shrinking(problem, radius: float = 0.1, rate: float | None = None, words: str = "x", anything=None):
        return KLBall(radius / problem.num_states)

    config = compose(["env=river_swim", "uncertainty=shrinking", "uncertainty.rate=2", "uncertainty.anything=[1,a]"])
    expected = {"name": "shrinking", "radius": 0.1, "rate": 2.0, "words": "x", "anything": [1, "a"]}
    assert config.uncertainty == expected
    with pytest.raises(InputError, match=r"uncertainty.rate: 'x' given, a number or null expected"):
        compose(["env=river_swim", "uncertainty=shrinking", "uncertainty.rate=x"])


def test_a_set_that_takes_anything_is_refused():
    registry.register_uncertainty("loose")(lambda problem, **rest: KLBall(0.1))
    with pytest.raises(InputError, match=r"uncertainty loose: \*rest given, named parameters expected"):
        compose(["env=river_swim", "uncertainty=loose"])
    registry.register_uncertainty("none")(lambda: KLBall(0.1))
    with pytest.raises(InputError, match=r"uncertainty none: .* is not a function of a problem"):
        compose(["env=river_swim", "uncertainty=none"])


def test_a_temporary_registry():
    with registry.temporary():
        registry.register_algo("mine")(lambda: {"family": "deep"})
        registry.register_uncertainty("mine")(lambda problem: KLBall(0.1))
        registry.register_cost("mine")(lambda *transition: 1.0)
        with registry.temporary():  # what is known outside is known inside
            assert registry.costs.get("mine")() == 1.0
        assert "mine" in registry.algorithm_names()
        assert "mine" in registry.uncertainty_names()
    assert "mine" not in {*registry.algorithm_names(), *registry.uncertainty_names()}
    with pytest.raises(InputError, match="cost: 'mine' given"):
        registry.costs.get("mine")


def test_a_temporary_registry_ends_whatever_happens():
    def fails():
        with registry.temporary():
            registry.register_algo("mine")(dict)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert "mine" not in registry.algorithm_names()


def test_no_cost_at_all():
    with pytest.raises(
        InputError, match=r"cost: 'speed' given, but none is registered; env.id=my_module:Env-v0 imports"
    ):
        registry.costs.get("speed")


def test_a_cost_of_ones_own():
    def speed(observation, action, following, reward, info):
        return abs(following[1])

    assert rcac.register_cost("speed")(speed) is speed
    assert registry.costs.get("speed") is speed
    with pytest.raises(InputError, match="cost: 'sped' given, one of speed expected"):
        registry.costs.get("sped")


@pytest.mark.parametrize("register", [rcac.register_algo, rcac.register_uncertainty, rcac.register_cost])
def test_one_name_one_thing(register):
    def first(problem):
        return {}

    register("twice")(first)
    register("twice")(first)  # a module that is loaded again
    with pytest.raises(InputError, match="'twice' is registered already"):
        register("twice")(lambda problem: {})
    for bad in ("a b", "a=b", "", "a/b", 3):
        with pytest.raises(InputError, match="a name of letters, digits and _ expected"):
            register(bad)(first)


def test_our_names_are_taken():
    with pytest.raises(InputError, match="algo: 'rnpg' is registered already"):
        rcac.register_algo("rnpg")(dict)
    with pytest.raises(InputError, match="uncertainty: 'kl_ball' is registered already"):
        rcac.register_uncertainty("kl_ball")(KLBall)


# Packages

PLUGIN = """
def row():
    return {"family": "tabular", "step": "natural", "switch": "crpo"}

def narrow(problem, radius: float = 0.5):
    from rcac.uncertainty import TotalVariation
    return TotalVariation(radius)
"""


POINTS = """
[rcac.algos]
offered = offering:row
broken = broken_offering:row
rnpg = broken_offering:row
[rcac.uncertainty]
narrow = offering:narrow
broken_set = broken_offering:narrow
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that offers an algorithm and a set, and some that are broken."""
    (tmp_path / "offering.py").write_text(PLUGIN)
    (tmp_path / "broken_offering.py").write_text("raise RuntimeError('out of order')")
    (tmp_path / "offering-1.0.dist-info").mkdir()
    (tmp_path / "offering-1.0.dist-info" / "METADATA").write_text("Name: offering\nVersion: 1.0\n")
    (tmp_path / "offering-1.0.dist-info" / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("package")
def test_what_packages_offer():
    config = compose(["env=river_swim", "algo=offered", "uncertainty=narrow"])
    assert (config.algo["step"], config.uncertainty) == ("natural", {"name": "narrow", "radius": 0.5})
    assert isinstance(registry.uncertainty_set("narrow")(None), TotalVariation)
    assert registry.algorithm_row("rnpg")["switch"] == "surrogate"  # ours, whatever a package says


@pytest.mark.usefixtures("package")
def test_a_broken_package_breaks_only_what_it_offers():
    assert compose(["env=river_swim", "algo=rnpg"]).algo["name"] == "rnpg"
    assert {"offered", "rnpg"} < set(registry.algorithms("tabular"))
    assert "broken" not in registry.algorithms()
    with pytest.raises(InputError, match=r"algo: 'broken' of broken_offering:row cannot be loaded \(RuntimeError"):
        compose(["env=river_swim", "algo=broken"])
    with pytest.raises(InputError, match="algo: 'nope' given, one of broken, cac, "):
        compose(["env=river_swim", "algo=nope"])


@pytest.mark.usefixtures("package")
def test_help_names_a_broken_package_and_leaves_it_out():
    text = help_text.train([])
    assert re.search(r"^  algo= \(tabular\) .*\boffered\b", text, re.MULTILINE)
    assert not re.search(r"^  algo= \(\w+\) .*\bbroken\b", text, re.MULTILINE)
    assert "algo: 'broken' of broken_offering:row cannot be loaded (RuntimeError('out of order'))" in text
    assert "uncertainty: 'broken_set' of broken_offering:narrow cannot be loaded" in text
    assert "  uncertainty=narrow " in text


# Sets that need arrays


def line(states: int) -> rcac.RCMDP:
    """One action, which moves to the right and stays at the end."""
    kernel = np.zeros((states, 1, states))
    kernel[np.arange(states), 0, np.minimum(np.arange(states) + 1, states - 1)] = 1.0
    return rcac.RCMDP(kernel, np.zeros((1, states, 1)), [], np.full(states, 1 / states), 0.9)


def test_steps_between_states():
    np.testing.assert_array_equal(steps_between(line(4)), np.abs(np.subtract.outer(np.arange(4), np.arange(4))))
    apart = rcac.RCMDP(np.eye(3)[:, None, :], np.zeros((1, 3, 1)), [], np.full(3, 1 / 3), 0.9)
    np.testing.assert_array_equal(steps_between(apart), 3 * (1 - np.eye(3)))


def test_complete_features_are_the_euclidean_ball():
    """The IPM norm of the difference of two distributions is its Euclidean norm."""
    rng = np.random.default_rng(0)
    features = complete_features(5)
    for _ in range(20):
        p, q = rng.dirichlet(np.ones(5), size=2)
        assert np.linalg.norm(features[:, 1:].T @ (q - p)) == pytest.approx(np.linalg.norm(q - p), rel=1e-12)


def test_arrays_from_files(tmp_path):
    problem, metric = line(3), 2.0 * np.abs(np.subtract.outer(np.arange(3), np.arange(3)))
    np.save(tmp_path / "metric.npy", metric)
    found = NAMED["wasserstein"](problem, 0.1, str(tmp_path / "metric.npy"))
    assert isinstance(found, Wasserstein)
    np.testing.assert_array_equal(found.metric, metric)
    np.savez(tmp_path / "kernels.npz", a=problem.kernel, b=problem.kernel)
    np.save(tmp_path / "kernels.npy", np.stack([problem.kernel] * 3))
    assert len(NAMED["finite"](problem, str(tmp_path / "kernels.npz"), True).kernels) == 2
    assert len(NAMED["finite"](problem, str(tmp_path / "kernels.npy"), True).kernels) == 3
    np.save(tmp_path / "objects.npy", np.array([print], dtype=object), allow_pickle=True)
    (tmp_path / "text.npy").write_text("no array")
    for name in ("objects.npy", "text.npy", "missing.npy"):
        with pytest.raises(InputError, match=rf"metric: .*{name}' given, a .npy or .npz file of plain arrays expected"):
            NAMED["wasserstein"](problem, 0.1, str(tmp_path / name))
    with pytest.raises(InputError, match=r"features: .* given, a .npy file of one array expected"):
        NAMED["linear_ipm"](problem, 0.1, str(tmp_path / "kernels.npz"))
