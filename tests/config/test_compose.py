"""Configuration: every key known, typed and ranged; nothing from text is executed; a saved one says it all."""

import dataclasses
import re

import hydra
import pytest
import yaml

from rcac import registry
from rcac.config import compose as module
from rcac.config import help_text
from rcac.config.compose import compose, load, parse
from rcac.config.overrides import as_overrides, whole_numbers
from rcac.config.schema import FAMILIES
from rcac.errors import InputError
from rcac.runs.arguments import describe_env, describe_run

ENVIRONMENTS = sorted(registry.rows("env"))


def words(text: str) -> list[str]:
    return text.split()


# What is composed


def test_the_commands_of_the_readme():
    config = compose(words("env=river_swim algo=rsqp uncertainty=kl_ball uncertainty.radius=0.01"))
    assert (config.env.id, config.algo["name"], config.algo["step"]) == ("rcac/RiverSwim-v0", "rsqp", "sqp")
    assert config.uncertainty == {"name": "kl_ball", "radius": 0.01}
    config = compose(words("env=cartpole algo=rcac_npg"))
    assert (config.env.budgets, config.env.kwargs["noise_high"]) == ([200.0], 0.04)
    assert (config.algo["family"], config.algo["step"], config.uncertainty) == ("deep", "natural", None)


@pytest.mark.parametrize("name", registry.algorithm_names())
def test_every_algorithm_is_its_row_on_its_familys_defaults(name):
    row = registry.algorithm_row(name)
    settings = FAMILIES[row["family"]](**row)
    env = "river_swim" if row["family"] == "tabular" else "cartpole"
    assert compose([f"env={env}", f"algo={name}"]).algo == {**dataclasses.asdict(settings), "name": name}


@pytest.mark.parametrize("name", registry.uncertainty_names())
def test_every_set_is_its_file(name):
    given = {"finite": ["uncertainty.kernels=k.npz"]}.get(name, [])
    values = registry.rows("uncertainty")[name]
    found = compose(["env=garnet", f"uncertainty={name}", *given]).uncertainty
    assert found.keys() == {"name", *values}
    resolved = {"kernels": "k.npz", "temperature": 50.0}
    assert found == {"name": name} | {key: resolved.get(key, value) for key, value in values.items()}


def test_what_is_not_given_depends_on_what_is():
    tabular, deep = compose(["env=garnet"]), compose(["env=cartpole_tradeoff"])
    assert (tabular.algo["name"], tabular.uncertainty["name"]) == ("rsqp", "kl_ball")
    assert (deep.algo["name"], deep.uncertainty) == ("rcac_npg", None)


def test_values_take_the_type_of_their_key():
    config = compose(
        words("env=cartpole algo.total_steps=1e5 algo.actor_lr=1 algo.actor_hidden=[8] algo.calibrate=false")
    )
    assert (config.algo["total_steps"], config.algo["actor_lr"]) == (100_000, 1.0)
    assert type(config.algo["total_steps"]) is int
    assert type(config.algo["actor_lr"]) is float
    assert (config.algo["actor_hidden"], config.algo["calibrate"]) == ([8], False)
    assert compose(words("env=cartpole env.budgets=[7] checkpoint_every=null")).env.budgets == [7.0]


def test_arguments_of_an_unknown_environment_are_its_own_business():
    config = compose(words("env=gym env.id=a/B-v0 env.budgets=[1] env.kwargs.size=3 env.kwargs.map={a:[1,2]}"))
    assert config.env.kwargs == {"size": 3, "map": {"a": [1, 2]}}


def test_plain_interpolation():
    config = compose(["env=river_swim", "uncertainty=kl_penalty", "runs=${env.name}", "seed=${algo.levels}"])
    assert (config.uncertainty["temperature"], config.runs, config.seed) == (1000.0, "river_swim", 10)


def test_adding_and_deleting_as_hydra_does():
    assert compose(words("env=garnet ++seed=4")).seed == 4
    config = compose(words("env=cartpole ~env.kwargs.wind"))
    assert config.env.kwargs.keys() == registry.rows("env")["cartpole"]["kwargs"].keys() - {"wind"}
    config = compose(words("env=gym env.id=a/B-v0 env.budgets=[1] +env.kwargs.size=3"))
    assert config.env.kwargs == {"size": 3}


def test_what_hydra_composes_is_what_its_choices_and_assignments_compose():
    """Plain assignments are made on a copy of the choices' composition; Hydra's own way gives the same."""
    for text in (
        "env=river_swim algo=rcac algo.lam=7 env.kwargs.costs=[1,2,3,4,5,6] seed=${algo.trials}",
        "env=frozen_lake uncertainty=kl_penalty uncertainty.value=linear env.kwargs.costs={hole:2} keep=5",
        "env=gym env.id=a/B-v0 env.budgets=[1] env.kwargs.map={a:[1,{b:2}]} algo.total_steps=1e5",
    ):
        with hydra.initialize_config_module("rcac.conf", version_base="1.3"):
            whole = hydra.compose("train", overrides=[whole_numbers(word) for word in words(text)])
        assert module.finish(whole) == compose(words(text))


def test_the_later_one_counts():
    assert compose(words("env=garnet seed=1 env=river_swim seed=2")).seed == 2


# What is refused

REFUSED = {
    "": "env: not given, one of ant_velocity, cartpole, ",
    "env=pond": "env: 'pond' given, one of ant_velocity, cartpole, cartpole_tradeoff, custom, frozen_lake, ",
    "env=garnet algo=foo": "algo: 'foo' given, one of cac, cpo, epirc_pgs, .*trpo_lagrangian expected",
    "env=garnet uncertainty=foo": "uncertainty: 'foo' given, one of chi_square, .*finite, .*kl_ball, .* expected",
    "env=garnet uncertainty=null": "uncertainty: None given, one of chi_square, ",
    "env=garnet lr=abc": r"lr: no such key, did you mean algo.multiplier_lr\?",
    "env=garnet zzz=abc": "zzz: no such key, known are algo, ",
    "env=cartpole lr=abc": r"lr: no such key, did you mean algo.actor_lr or algo.critic_lr or algo.multiplier_lr\?",
    "env=cartpole gamma=1": r"gamma: no such key, did you mean algo.gamma\?",
    "env=cartpole algo.actor_lr=abc": "algo.actor_lr: 'abc' given, a number expected",
    "env=cartpole algo.actor_lr=nan": "algo.actor_lr: nan given, a number expected",
    "env=cartpole algo.actor_lr=true": "algo.actor_lr: True given, a number expected",
    "env=cartpole algo.actor_lr=null": "algo.actor_lr: None given, a number expected",
    "env=cartpole algo.total_steps=1.5": "algo.total_steps: 1.5 given, a whole number expected",
    "env=cartpole algo.total_step=5": r"algo.total_step: no such key, did you mean algo.total_steps\?",
    "env=cartpole algo.actor_hidden=[x]": r"algo.actor_hidden: \['x'\] given, a list of whole numbers like \[1, 2\] ",
    "env=cartpole algo.actor_hidden=8": r"algo.actor_hidden: 8 given, a list of whole numbers",
    "env=cartpole algo.calibrate=maybe": "algo.calibrate: 'maybe' given, true or false expected",
    "env=cartpole algo.calibrate=off": "algo.calibrate: 'off' given, true or false expected",
    "env=cartpole algo=[a]": r"algo: \['a'\] given, one of ",
    "env=cartpole algo.lam.x=1": "algo.lam.x: no such key",
    "env=garnet env.kwargs.num_state=3": r"env.kwargs.num_state: no such key, did you mean env.kwargs.num_states",
    "env=frozen_lake env.kwargs.costs.hol=1": r"no such key, did you mean env.kwargs.costs.hole",
    "env=garnet env={nam:x}": r"env.nam: no such key, did you mean env.name",
    "env=cartpole env.budgets=5": r"env.budgets: 5 given, a list of numbers like \[1, 2\] or null expected",
    "env=cartpole env.budgets=[.inf]": "budgets",
    "env=cartpole env.budgets=[inf]": r"env.budgets\[0\]: inf given, a finite number expected",
    "env=cartpole env.budgets=[nan]": r"env.budgets.0: nan given, a number expected",
    "env=cartpole env.kwargs.wind=nan": r"env.kwargs.wind: nan given, a number expected",
    "env=cartpole env.vectorization=gpu": "env.vectorization: 'gpu' given, one of async, auto, sync, vector expected",
    "env=cartpole env.max_episode_steps=0": "env.max_episode_steps: 0 given, a whole number ≥ 1, or null expected",
    "env=cartpole uncertainty=kl_ball": "uncertainty: kl_ball given with rcac_npg, one of nominal, ipm, parameters expected",
    "env=cartpole uncertainty.radius=1": "uncertainty.radius: no such key",
    "env=garnet seed=-1": "seed: -1 given, a whole number from 0 to",
    "env=garnet seed=abc": "seed: 'abc' given, a whole number expected",
    "env=garnet keep=0": "keep: 0 given, a whole number ≥ 1 expected",
    "env=garnet checkpoint_every=0": "checkpoint_every: 0 given, a whole number ≥ 1, or null expected",
    "env=garnet progress=maybe": "progress: 'maybe' given, true or false expected",
    "env=custom": "env.path: not given",
    "env=gym env.budgets=[1]": "env.id: not given",
    "env=gym env.id=a/B-v0": "env.budgets: not given",
    "env=garnet uncertainty=finite": "uncertainty.kernels: not given",
    "env=garnet,river_swim": "env=garnet,river_swim: several values given, one expected",
    "env=garnet seed=range(3)": "several values given, one expected",
    "env=garnet +seed=1": "An item is already at 'seed'",
    "env=garnet +sed=1": r"sed: no such key, did you mean seed\?",
    "env=garnet +env.idd=1": r"env.idd: no such key, did you mean env.id",
    "env=garnet +algo.lamm=1": r"algo.lamm: no such key, did you mean algo.lam",
    "env=garnet ++uncertainty.radi=1": r"uncertainty.radi: no such key, did you mean uncertainty.radius",
    "env=garnet ~seed": "seed: deleted, a value expected",
    "env=garnet ~algo.nope": "'algo.nope' does not exist",
    "env@algo=garnet": "Could not override 'env@algo'",
    "env=garnt": "env: 'garnt' given, one of .*, did you mean garnet",
    "env=garnet algo=rnp": "algo: 'rnp' given, one of .*, did you mean rnpg",
    "env=garnet uncertainty=klball": "uncertainty: 'klball' given, one of .*, did you mean kl_ball",
    "garnet": "garnet: not understood .*, key=value expected",
    "env=garnet runs=[": "not understood",
    "env=garnet runs=${oc.env:HOME}": "runs: .* given, no interpolation but",
    "env=garnet runs=${oc.env:${seed}}": "not understood",
    "env=cartpole uncertainty={name:kl_ball}": "uncertainty: .* given with rcac_npg, one of",
    "env=garnet runs=a${hydra:x}b": "runs: .* given, no interpolation but",
    "env=garnet runs=${nope}": "runs: Interpolation key 'nope' not found",
    "env=garnet seed=${env.name}": "seed: .*could not be converted to Integer",
    "env=garnet runs=${runs}": "runs: ",
    "env=garnet algo._target_=os.system": "algo._target_: _target_ given, .* nothing is instantiated from text",
    "env=gym env.id=x env.budgets=[1] env.kwargs._target_=x": "_target_ given",
    "env=gym env.id=x env.budgets=[1] env.kwargs={a:{_target_:x}}": "env.kwargs.a._target_: _target_ given",
    "env=garnet env.name=river_swim": r"env.name: 'river_swim' given, 'garnet' expected \(another is chosen with env=…\)",
    "env=garnet algo.family=deep": "algo.family: 'deep' given, 'tabular' expected",
    "env=garnet algo.name=x": "algo.name: 'x' given, 'rsqp' expected",
    "env=garnet uncertainty.name=nominal": "uncertainty.name: 'nominal' given, 'kl_ball' expected",
    "env=garnet hydra.run.dir=x": "hydra.run.dir: no such key",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_one_line_that_names_the_key_the_value_and_what_was_expected(text):
    with pytest.raises(InputError, match=REFUSED[text]) as error:
        compose(words(text))
    assert "\n" not in str(error.value)


def test_slashes_are_dots():
    assert parse(["env/id=a/b"]) == [("env.id", "a/b")]


# Saved and loaded


def saved(tmp_path, config) -> dict:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.plain(), sort_keys=False, allow_unicode=True))
    return load(tmp_path)


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_a_saved_configuration_is_composed_again_exactly(tmp_path, env):
    given = {"custom": ["env.path=a.npz"], "gym": ["env.id=a/B-v0", "env.budgets=[1,2]", "env.kwargs.a={b:[1,{c:2}]}"]}
    config = compose([f"env={env}", "seed=3", "keep=7", r"runs='it\'s \\'", *given.get(env, [])])
    assert compose([], saved(tmp_path, config)) == config
    assert compose(as_overrides(config.plain())) == config


def test_overrides_on_top_of_a_saved_one(tmp_path):
    first = compose(words("env=garnet algo=rnpg algo.lam=7 uncertainty=total_variation uncertainty.radius=.2 seed=3"))
    kept = saved(tmp_path, first)
    again = compose(words("seed=4 algo.step_size=.5"), kept)
    assert again == dataclasses.replace(first, seed=4, algo={**first.algo, "step_size": 0.5})
    other = compose(words("algo=rppg"), kept)  # a choice brings its own values
    assert (other.algo, other.uncertainty) == (compose(words("env=garnet algo=rppg")).algo, first.uncertainty)
    assert compose(words("algo=rcac"), kept).uncertainty is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "the configuration of a run expected"),
        ("[]", "with env and algo"),
        ("env: river_swim\nalgo: rnpg", "with env and algo"),
        ("env: {name: pond}\nalgo: {name: rnpg}", "env: 'pond' given"),
        ("env: {name: garnet}\nalgo: {name: rnpg, lam: x}", "algo.lam: 'x' given"),
        ("env: {name: garnet}\nalgo: {name: rnpg, lamb: 1}", "algo.lamb: no such key"),
        ("env: {name: garnet}\nalgo: {name: rnpg}\nsed: 1", "sed: no such key, did you mean seed"),
        ("env: {name: garnet}\nalgo: {name: rnpg}\nruns: ${oc.env:HOME}", "no interpolation but"),
        ("env: {name: garnet, _target_: os.system}\nalgo: {name: rnpg}", "_target_ given"),
        ("env: !!python/object/apply:os.system [touch owned]\nalgo: {}", "could not determine a constructor"),
        ("env: &a {name: garnet}\nalgo: *a", r"it has an alias \(\*\)"),
        ("env: {name: garnet}\nalgo: {name: rnpg, lam: .nan}", "algo.lam: nan given"),
        ("env: {1: garnet}\nalgo: {name: rnpg}", "env: 1 given, text expected as a key"),
        ("env: {name: 2020-01-01}\nalgo: {name: rnpg}", "plain data expected"),
        ("[" * 5000, "nested deeper than 20"),
    ],
)
def test_a_foreign_file_is_refused(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(InputError, match=message) as error:
        compose([], load(tmp_path))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "owned").exists()


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"the configuration of a run expected \(config.yaml: No such file"):
        load(tmp_path)
    with pytest.raises(InputError, match="the configuration of a run expected"):
        load(tmp_path / "nowhere")


# Help


def test_help_knows_every_group_and_every_key():
    text = help_text.train([])
    for name in [*ENVIRONMENTS, *registry.uncertainty_names(), *registry.algorithm_names()]:
        assert re.search(rf"\b{name}\b", text)
    for key in ("seed=0", "progress=true", "runs=runs", "checkpoint_every=null", "keep=3", "resume=null"):
        assert re.search(rf"  {re.escape(key)} +\w", text), key


@pytest.mark.parametrize("name", registry.algorithm_names())
def test_help_explains_every_key_of_an_algorithm(name):
    text = help_text.train([f"algo={name}"])
    config = compose(
        [f"env={'river_swim' if registry.algorithm_row(name)['family'] == 'tabular' else 'cartpole'}", f"algo={name}"]
    )
    for key, value in config.algo.items():
        if key != "name":
            shown = (
                {None: "null", True: "true", False: "false"}[value]
                if value is None or isinstance(value, bool)
                else value
            )
            assert re.search(rf"  algo\.{key}={re.escape(str(shown))} +\S", text), key


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_help_explains_the_keys_of_an_environment(name):
    text = help_text.train([f"env={name}"])
    for key in (
        "id",
        "budgets",
        "max_episode_steps",
        "vectorization",
        *(f"kwargs.{k}" for k in registry.rows("env")[name]["kwargs"]),
    ):
        assert re.search(rf"  env\.{re.escape(key)}(=|\s)", text), key


def test_help_on_what_there_is_not():
    with pytest.raises(InputError, match="algo: 'foo' given, one of"):
        help_text.train(["algo=foo"])


def test_one_list_of_groups():
    assert module.GROUPS == ("env", "algo", "uncertainty")


def test_an_environment_has_its_own_defaults_for_deep_methods():
    own = registry.rows("env")["river_swim"]["deep"]
    assert own
    plain = compose(["env=cartpole", "algo=rcac_npg"]).algo
    chosen = compose(["env=river_swim", "algo=rcac_npg"]).algo
    assert {key: chosen[key] for key in chosen if chosen[key] != plain[key]} == own
    assert "deep" not in vars(compose(["env=river_swim", "algo=rsqp"]).env)
    for key, value in own.items():
        assert f"  algo.{key}={value}" in help_text.train(["env=river_swim"])


def test_methods_and_users_go_before_an_environments_defaults():
    assert compose(["env=river_swim", "algo=cac"]).algo["radius"] == 0.0  # what makes it CAC
    assert compose(["env=river_swim", "algo=rcac_npg", "algo.lam=7"]).algo["lam"] == 7.0
    saved = compose(["env=river_swim", "algo=rcac_npg", "algo.lam=7"]).plain()
    assert compose([], saved).algo["lam"] == 7.0
    with pytest.raises(InputError, match=r"env\.deep\.lam: no such key, did you mean algo\.lam"):
        compose(["env=river_swim", "env.deep.lam=7"])


def test_nothing_of_one_configuration_is_left_in_the_next():
    before = compose(["env=cartpole", "algo=rcac_npg"])
    compose(["env=cartpole", "algo=rcac_npg", "algo.lam=7", "env.kwargs.wind=3", "env.budgets=[1]"])
    assert compose(["env=cartpole", "algo=rcac_npg"]) == before
    for lam in (3.0, 4.0):  # what is registered under a name may change
        with registry.temporary():
            registry.register_algo("mine")(lambda lam=lam: {"family": "deep", "lam": lam})
            assert compose(["env=cartpole", "algo=mine"]).algo["lam"] == lam


PAPER = [
    (["env=river_swim", "algo=rnpg"], {"step": "softmax", "step_size": 1e-3, "lam": 50.0, "start": "random"}),
    (["env=river_swim", "algo=rppg"], {"step": "projected", "step_size": 1e-3, "lam": 10.0, "start": "uniform"}),
    (["env=garnet", "algo=rppg"], {"lam": 15.0, "objective": "complement"}),
    (["env=frozen_lake", "algo=rppg"], {"lam": 50.0}),
    (["env=garnet", "algo=epirc_pgs"], {"step_size": 1e-3, "levels": 10, "iterations": 1000, "restart": True}),
    (["env=cartpole", "algo=rcac"], {"critics": "selected", "advantage": "q_regression", "switch": "surrogate"}),
    (["env=cartpole", "algo=robust_crpo_deep"], {"critics": "selected", "switch": "crpo"}),
]


@pytest.mark.parametrize(("choices", "expected"), PAPER)
def test_the_papers_settings_are_one_key(choices, expected):
    config = compose([*choices, "preset=paper"])
    assert {key: config.algo[key] for key in expected} == expected
    assert config.uncertainty is None or (config.uncertainty["name"], config.uncertainty["value"]) == (
        "kl_penalty",
        "linear",
    )
    assert config.env.kwargs.get("start", "fixed") == "fixed"


@pytest.mark.parametrize(("choices", "expected"), PAPER)
def test_presets_are_the_same_from_python(choices, expected):
    names = dict(choice.split("=") for choice in choices)
    config = compose([*choices, "preset=paper"])
    place = describe_env(config.env.id, None, None, None, None, preset="paper")
    own = describe_run(place, names["algo"], None, {}, preset="paper", seed=0, progress=False, loggers=[])
    assert (own.algo, own.uncertainty, own.env.kwargs) == (config.algo, config.uncertainty, config.env.kwargs)


def test_what_is_given_counts_before_a_preset():
    config = compose(["env=river_swim", "preset=paper", "algo=rnpg", "algo.lam=7", "uncertainty=kl_ball"])
    assert (config.algo["lam"], config.algo["step_size"], config.uncertainty["name"]) == (7.0, 1e-3, "kl_ball")
    assert compose(["env=river_swim", "preset=null"]) == compose(["env=river_swim"])


@pytest.mark.parametrize(
    ("overrides", "saved", "message"),
    [
        (["env=river_swim", "preset=papers"], {}, "preset: 'papers' given, one of paper expected"),
        (["env=river_swim", "preset=3"], {}, "preset: 3 given, one of paper expected"),
        (["preset=paper"], {"env": {"name": "river_swim"}}, "preset: given on top of a saved configuration"),
    ],
)
def test_presets_that_cannot_be_used(overrides, saved, message):
    with pytest.raises(InputError, match=message):
        compose(overrides, saved)
