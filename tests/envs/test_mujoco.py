"""The velocity tasks against Gymnasium's bodies, against the model's own numbers, and against themselves, one and many."""

import copy
import json
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode

from rcac.envs import contexts, register_envs
from rcac.errors import InputError

mujoco = pytest.importorskip("mujoco", reason="the extra mujoco is not installed")

from gymnasium.envs.mujoco.mujoco_env import MujocoEnv  # noqa: E402

from rcac.envs.mujoco import MujocoContexts  # noqa: E402
from rcac.envs.mujoco.velocity import WALKING  # noqa: E402

register_envs()
LIMITS = {"Hopper": 0.7402, "Walker2d": 2.3415, "HalfCheetah": 3.2096, "Ant": 2.6222, "Swimmer": 0.2282}
BODIES = list(LIMITS)
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """MuJoCo logs warnings about Gymnasium's HalfCheetah in the working directory."""
    monkeypatch.chdir(tmp_path)


def make(body, **kwargs):
    return gym.make(f"rcac/{body}Velocity-v0", **kwargs)


def actions_for(env, steps, seed=0):
    space = env.action_space
    return np.random.default_rng(seed).uniform(space.low, space.high, (steps, *space.shape)).astype(space.dtype)


def play(env, actions, seed=None):
    """Observations, rewards and costs; a new episode where one ends."""
    seen, rows = env.reset(seed=seed)[0], []
    for action in actions:
        rows.append(seen)
        seen, reward, terminated, truncated, info = env.step(action)
        rows.append(np.array([reward, terminated, truncated, info.get("cost", 0.0)]))
        if terminated or truncated:
            seen = env.reset()[0]
    return np.concatenate([*rows, seen])


def as_saved(state):
    """A state after a trip through a file of plain data."""
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    return arrays | json.loads(json.dumps({name: value for name, value in state.items() if name not in arrays}))


# Registration


def test_importing_and_registering_load_no_mujoco():
    code = (
        "import sys, rcac, rcac.envs; rcac.envs.register_envs();"
        "sys.exit(str([m for m in sys.modules if m.split('.')[0] == 'mujoco']) if 'mujoco' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_the_extra_one_line_says_what_to_install():
    code = (
        "import sys; sys.modules['mujoco'] = None\n"
        "import gymnasium, rcac\n"
        "try: gymnasium.make('rcac/HopperVelocity-v0')\n"
        "except gymnasium.error.DependencyNotInstalled as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == 'MuJoCo is not installed: pip install "rcac[mujoco]"\n'


@pytest.mark.filterwarnings("ignore:.*Box observation space.*")
@pytest.mark.parametrize("body", BODIES)
def test_gymnasium_accepts_it(body, tmp_path):
    check_env(make(body).unwrapped, skip_render_check=True)
    assert not list(tmp_path.iterdir())  # no log
    assert gym.spec(f"rcac/{body}Velocity-v0").max_episode_steps == 1000


# The tasks are Gymnasium's, and a cost


@pytest.mark.parametrize("body", BODIES)
def test_nominal_trajectories_are_gymnasiums(body):
    ours, theirs = make(body, max_episode_steps=120), gym.make(f"{body}-v5", max_episode_steps=120)
    (seen, _), (expected, _) = ours.reset(seed=5), theirs.reset(seed=5)
    ends = over = 0
    for action in actions_for(ours, 300) * (3.0 if body == "Swimmer" else 1.0):
        assert seen.tobytes() == expected.tobytes()
        seen, *rest, info = ours.step(action)
        expected, *truth, about = theirs.step(action)
        assert rest == truth
        assert {key: info[key] for key in about} == about
        speed = np.hypot(about["x_velocity"], about["y_velocity"]) if body == "Ant" else about["x_velocity"]
        assert info["cost"] == float(speed > LIMITS[body])
        assert type(info["cost"]) is float
        assert info["costs"].tolist() == [info["cost"]]
        over += info["cost"]
        if truth[1] or truth[2]:
            ends += 1
            (seen, _), (expected, _) = ours.reset(), theirs.reset()
    assert ends >= 2
    assert ours.unwrapped.np_random.bit_generator.state == theirs.unwrapped.np_random.bit_generator.state
    assert over > 0 or body in ("Walker2d", "HalfCheetah")  # random actions do not run that fast


@pytest.mark.parametrize("body", BODIES)
def test_the_cost_depends_on_the_threshold(body):
    env = make(body, velocity_threshold=0.0)
    env.reset(seed=0)
    infos = [env.step(action)[-1] for action in actions_for(env, 100)]
    fast = [body == "Ant" or info["x_velocity"] > 0 for info in infos]
    assert [bool(info["cost"]) for info in infos] == fast
    assert any(fast)


# Contexts


@pytest.mark.parametrize("body", BODIES)
def test_every_declared_parameter_changes_a_trajectory_and_nominal_is_the_way_back(body):
    env = make(body)
    actions = actions_for(env, 60)
    nominal = play(env, actions, seed=0)
    known = contexts.parameters(env)
    assert all(parameter.nominal == 1 for parameter in known.values())
    if body != "Swimmer":
        assert set(known) == set(WALKING)
    for name, parameter in known.items():
        for factor in (parameter.low, parameter.high):
            contexts.set_context(env, {name: factor})
            changed = play(env, actions, seed=0)
            assert env.unwrapped.context == {other: 1.0 for other in known} | {name: factor}
            assert not np.array_equal(changed, nominal), (name, factor)
            by_argument = play(make(body, **{name: factor}), actions, seed=0)
            assert by_argument.tobytes() == changed.tobytes(), (name, factor)
    contexts.set_context(env, {})
    assert play(env, actions, seed=0).tobytes() == nominal.tobytes()


@pytest.mark.parametrize("body", ["Hopper", "Walker2d", "HalfCheetah", "Ant"])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_friction_reaches_the_contact(body, factor):
    """A contact has the larger friction of its two geoms; the factor has to scale that."""

    def friction(env):
        env.reset(seed=0)
        for _ in range(200):
            env.step(np.zeros(env.action_space.shape, np.float32))
            if env.unwrapped.data.ncon:
                contact = env.unwrapped.data.contact[0]
                return tuple(contact.geom), np.array(contact.friction)
        raise AssertionError("no contact")

    env = make(body)
    geoms, nominal = friction(env)
    contexts.set_context(env, {"geom_friction:*": factor})
    assert friction(env)[0] == geoms
    assert friction(env)[1] == pytest.approx(factor * nominal, rel=1e-12)


def test_fields_and_what_is_derived_from_them():
    env = make("Hopper").unwrapped
    nominal = copy.copy(env.model)
    torso = env.model.body("torso").id
    env.set_context({"body_mass:torso": 1.5, "body_mass:*": 2.0, "dof_damping:leg_joint": 3.0, "gravity": 0.5})
    assert env.model.body_mass.tolist() == nominal.body_mass.tolist()  # from the next reset on
    env.reset(seed=0)
    factors = np.where(np.arange(env.model.nbody) == torso, 3.0, 2.0)
    assert env.model.body_mass == pytest.approx(factors * nominal.body_mass, rel=1e-15)
    assert env.model.body_inertia == pytest.approx(factors[:, None] * nominal.body_inertia, rel=1e-15)
    assert env.model.body_subtreemass[0] == pytest.approx((factors * nominal.body_mass).sum(), rel=1e-12)
    leg = np.arange(env.model.nv) == env.model.joint("leg_joint").dofadr
    assert env.model.dof_damping.tolist() == (np.where(leg, 3.0, 1.0) * nominal.dof_damping).tolist()
    assert env.model.opt.gravity.tolist() == (0.5 * nominal.opt.gravity).tolist()
    # MuJoCo's own compiler as the truth for what is derived: the same masses in the XML
    spec = mujoco.MjSpec.from_file(env.fullpath)
    spec.compile()
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    for body, factor in zip(spec.bodies, factors, strict=True):
        if body.id:
            body.mass, body.inertia = factor * nominal.body_mass[body.id], factor * nominal.body_inertia[body.id]
            body.ipos, body.iquat, body.explicitinertial = nominal.body_ipos[body.id], nominal.body_iquat[body.id], True
    spec.joint("leg_joint").damping = 3.0 * spec.joint("leg_joint").damping
    truth = spec.compile()
    for field in ("body_mass", "body_subtreemass", "body_invweight0", "dof_M0", "dof_invweight0", "actuator_acc0"):
        assert getattr(env.model, field) == pytest.approx(getattr(truth, field), rel=1e-9), field


def test_a_context_stays_for_the_episode():
    env = make("HalfCheetah", max_episode_steps=20)
    actions = actions_for(env, 20)
    nominal = play(env, actions[:19], seed=0)
    env.reset(seed=0)
    contexts.set_context(env, {"gravity": 0.8})
    seen = [env.step(action)[0] for action in actions[:19]]
    assert np.array_equal(seen[-1], nominal[-17:])
    assert env.unwrapped.context["gravity"] == 1.0
    env.reset()
    assert env.unwrapped.context["gravity"] == env.unwrapped.next_context["gravity"] == 0.8
    env.reset()
    assert env.unwrapped.context["gravity"] == 0.8


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ({"body_mass:torso": 0.0}, "body_mass:torso: 0 given, a factor > 0 expected"),
        ({"gravity": float("nan")}, "gravity: nan given, a finite number expected"),
        ({"geom_friction:*": -1}, "geom_friction:*: -1 given, a factor ≥ 0 expected"),
        ({"body_mass:tail": 1.0}, "body_mass:tail: no such object in the model, one of world, torso, thigh"),
        ({"body_name:*": 1.0}, "body_name:*: no such field of numbers"),
        ({"wind": 1.0}, "wind"),
    ],
)
def test_bad_contexts_are_named(context, words):
    env = make("Hopper").unwrapped
    with pytest.raises(InputError) as caught:
        env.set_context(context)
    assert str(caught.value).startswith(words)
    vector = gym.make_vec("rcac/HopperVelocity-v0", 2, "vector_entry_point")
    with pytest.raises(InputError) as caught:
        vector.set_contexts(context)
    assert str(caught.value).startswith(words.split(" given")[0].split(": ")[0])


def test_a_field_of_zeros_is_no_parameter():
    with pytest.raises(InputError, match="all zeros"):
        make("Swimmer").unwrapped.set_context({"dof_damping:*": 2.0})


def test_an_environment_can_be_copied():
    env = make("Hopper", velocity_threshold=0.1, **{"body_mass:torso": 1.5}).unwrapped
    twin = copy.deepcopy(env)
    assert twin.velocity_threshold == 0.1
    assert play(twin, actions_for(env, 20), seed=0).tobytes() == play(env, actions_for(env, 20), seed=0).tobytes()


# States


@pytest.mark.parametrize("body", BODIES)
def test_a_state_continues_exactly(body):
    env = make(body, max_episode_steps=50)
    contexts.set_context(env, {"body_mass:*": 1.2})
    play(env, actions_for(env, 37), seed=0)
    contexts.set_context(env, {"body_mass:*": 0.9, "actuator_gear:*": 1.1})
    state = as_saved(env.unwrapped.get_state())
    actions = actions_for(env, 80, seed=1)

    def onwards(env):
        return np.concatenate([np.append(seen, [reward, *ends]) for seen, reward, *ends, _ in _steps(env, actions)])

    expected = onwards(env)
    other = make(body, max_episode_steps=50)
    play(other, actions[:10], seed=8)
    other.unwrapped.set_state(state)
    other.set_wrapper_attr("_elapsed_steps", int(state["steps"]))
    assert onwards(other).tobytes() == expected.tobytes()
    assert other.unwrapped.context == env.unwrapped.context
    assert other.unwrapped.np_random.bit_generator.state == env.unwrapped.np_random.bit_generator.state


def _steps(env, actions):
    for action in actions:
        yield (result := env.step(action))
        if result[2] or result[3]:
            seen, info = env.reset()
            yield seen, 0.0, False, False, info


# Many


def both(body, num_envs, mode, **kwargs):
    sync = {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": mode}}
    single = gym.make_vec(f"rcac/{body}Velocity-v0", num_envs, **sync, **kwargs)
    return single, gym.make_vec(
        f"rcac/{body}Velocity-v0", num_envs, "vector_entry_point", autoreset_mode=mode, num_threads=2, **kwargs
    )


def random_contexts(known, num_envs, rng):
    return {name: rng.uniform(parameter.low, parameter.high, num_envs) for name, parameter in known.items()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("body", BODIES)
def test_the_vector_is_n_single_environments_in_contexts_of_their_own(body, mode):
    num_envs, rng = 3, np.random.default_rng(0)
    single, vector = both(body, num_envs, mode, max_episode_steps=30, velocity_threshold=0.1)
    known = contexts.parameters(vector)
    assert known == contexts.parameters(single)
    expected, seen = single.reset(seed=11)[0], vector.reset(seed=11)[0]
    ends = 0
    for t in range(110):
        if t in (10, 60):  # in the middle of episodes
            chosen = random_contexts(known, num_envs, rng)
            contexts.set_contexts(single, chosen)
            contexts.set_contexts(vector, chosen)
        assert seen.dtype == expected.dtype
        assert np.array_equal(seen, expected), t
        action = rng.uniform(-1, 1, single.action_space.shape).astype(np.float32)
        seen, *rest, infos = vector.step(action)
        expected, *truth, about = single.step(action)
        for ours, theirs in zip(rest, truth, strict=True):
            assert ours.dtype == theirs.dtype
            assert np.array_equal(ours, theirs), t
        ends += (truth[1] | truth[2]).sum()
        for key, value in infos.items():
            if key == "final_info":
                assert all(data_equivalence(value[k], about[key][k], exact=True) for k in value)
            elif key in about:
                assert data_equivalence(value, about[key], exact=True), key
            else:  # every episode ended: Gymnasium leaves the key out, ours says that nobody has it
                assert not infos["_" + key.removeprefix("_")].any()
        present, truth = contexts.contexts_of(vector), contexts.contexts_of(single)
        assert all(np.array_equal(present[name], truth[name]) for name in known)
    assert ends > 2 * num_envs


@pytest.mark.parametrize("body", ["HalfCheetah", "Ant"])
def test_a_vector_state_continues_exactly(body):
    _, vector = both(body, 3, AutoresetMode.NEXT_STEP, max_episode_steps=30)
    rng = np.random.default_rng(0)
    vector.reset(seed=0)
    actions = rng.uniform(-1, 1, (100, *vector.action_space.shape)).astype(np.float32)
    for t in range(45):
        if t in (3, 40):
            vector.set_contexts(random_contexts(vector.context_parameters, 3, rng))
        vector.step(actions[t])
    state = as_saved(vector.get_state())
    expected = [vector.step(action)[:2] for action in actions[45:]]
    _, other = both(body, 3, AutoresetMode.NEXT_STEP, max_episode_steps=30)
    other.reset(seed=5)
    other.step(actions[0])
    other.set_state(state)
    for action, (seen, reward) in zip(actions[45:], expected, strict=True):
        ours = other.step(action)
        assert np.array_equal(ours[0], seen)
        assert np.array_equal(ours[1], reward)
    for name, values in vector.contexts.items():
        assert np.array_equal(other.contexts[name], values)


def test_environments_do_not_share_a_model():
    """Changing one environment's context leaves the others' trajectories as they were."""
    for envs in both("Hopper", 3, AutoresetMode.NEXT_STEP, max_episode_steps=30):
        actions = np.random.default_rng(0).uniform(-1, 1, (60, *envs.action_space.shape)).astype(np.float32)

        def trajectories(masses, envs=envs, actions=actions):
            contexts.set_contexts(envs, {"body_mass:*": masses})
            return np.stack([envs.reset(seed=0)[0], *(envs.step(action)[0] for action in actions)])

        nominal, changed = trajectories([1.0, 1.0, 1.0]), trajectories([1.0, 1.7, 1.0])
        assert np.array_equal(nominal[:, [0, 2]], changed[:, [0, 2]])
        assert not np.array_equal(nominal[:, 1], changed[:, 1])


def test_returned_arrays_are_not_changed_by_later_steps():
    _, vector = both("Ant", 2, AutoresetMode.SAME_STEP, max_episode_steps=3)
    vector.reset(seed=0)
    actions = np.zeros(vector.action_space.shape, np.float32)
    results = [vector.step(actions) for _ in range(3)]
    then = copy.deepcopy(results)
    for _ in range(4):
        vector.step(actions + 0.5)
    for ours, before in zip(results, then, strict=True):
        assert data_equivalence(ours[:4], before[:4], exact=True)
        assert np.array_equal(ours[4]["costs"], before[4]["costs"])
    assert all(map(np.array_equal, results[-1][4]["final_obs"], then[-1][4]["final_obs"]))


@pytest.mark.parametrize(("argument", "value"), [("num_threads", -1), ("num_envs", 0), ("autoreset_mode", "Never")])
def test_bad_arguments_of_the_vector_are_named(argument, value):
    from rcac.envs.mujoco.velocity_vector import HopperVelocity

    with pytest.raises(InputError, match=f"^{argument}: "):
        HopperVelocity(**{"num_envs": 1, argument: value})


# Any MuJoCo environment

XML = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1" friction="1 .005 .0001"/>
    <body name="box" pos="0 0 .1">
      <freejoint/>
      <geom name="box" type="box" size=".1 .1 .1" mass="1" friction=".3 .005 .0001"/>
    </body>
  </worldbody>
  <contact><pair geom1="floor" geom2="box" friction=".4 .4 .005 .0001 .0001"/></contact>
</mujoco>
"""


class Pushed(MujocoEnv):
    """A user's own environment: a box that slides until friction stops it."""

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"], "render_fps": 100}  # noqa: RUF012

    def __init__(self, xml_file):
        super().__init__(xml_file, 1, gym.spaces.Box(-np.inf, np.inf, (13,)))

    def reset_model(self):
        self.set_state(self.init_qpos, np.array([2.0, 0, 0, 0, 0, 0]))
        return self.state_vector()

    def step(self, action):
        self.do_simulation(np.zeros(0), 1)
        return self.state_vector(), 0.0, False, False, {}


@pytest.fixture
def pushed(tmp_path):
    (tmp_path / "box.xml").write_text(XML)
    return MujocoContexts(Pushed(str(tmp_path / "box.xml")))


def test_a_users_own_model(pushed):
    """Coulomb's law as the truth: a box of speed v stops after v²/(2 μ g), and mass does not matter."""
    assert set(pushed.context_parameters) == {"body_mass:*", "geom_friction:*", "gravity"}

    def distance(context):
        pushed.set_context(context)
        pushed.reset(seed=0)
        for _ in range(150):
            pushed.step(None)
        return pushed.unwrapped.data.qpos[0]

    for friction, gravity, mass in ((1, 1, 1), (2, 1, 1), (0.5, 1, 1), (1, 1.2, 1), (1, 1, 2)):
        truth = 4 / (2 * 0.4 * friction * 9.81 * gravity)
        reached = distance({"geom_friction:*": friction, "gravity": gravity, "body_mass:*": mass})
        assert reached == pytest.approx(truth, rel=0.05)


def test_the_wrapper_gives_gymnasiums_bodies_the_tasks_contexts():
    ours, theirs = make("HalfCheetah", max_episode_steps=30), gym.make("HalfCheetah-v5", max_episode_steps=30)
    wrapped = MujocoContexts(theirs, ["body_mass:torso", "geom_friction:*"])
    assert set(wrapped.context_parameters) == {"body_mass:torso", "geom_friction:*"}
    actions = actions_for(ours, 75)
    for context in ({}, {"body_mass:torso": 1.5}, {"geom_friction:*": 0.5, "actuator_gear:*": 0.8}):
        contexts.set_context(ours, context)
        contexts.set_context(wrapped, context)
        seen, expected = ours.reset(seed=0)[0], wrapped.reset(seed=0)[0]
        for action in actions:
            assert np.array_equal(seen, expected)
            seen, reward, _, truncated, _ = ours.step(action)
            expected, *truth, _ = wrapped.step(action)
            assert (reward, False, truncated) == tuple(truth)
            if truncated:
                seen, expected = ours.reset()[0], wrapped.reset()[0]
    state = as_saved(wrapped.get_state())
    onwards = play(wrapped, actions)
    wrapped.set_state(state)
    assert play(wrapped, actions).tobytes() == onwards.tobytes()
    assert wrapped.spec is not None  # it can be made again, from a list of what it is


def test_wrapped_environments_in_a_vector():
    envs = gym.make_vec("Hopper-v5", 2, "sync", wrappers=[MujocoContexts])
    contexts.set_contexts(envs, {"body_mass:torso": [0.5, 2.0]})
    envs.reset(seed=0)
    masses = [env.unwrapped.model.body("torso").mass[0] for env in envs.envs]
    assert masses[1] == pytest.approx(4 * masses[0], rel=1e-12)
    assert contexts.contexts_of(envs)["body_mass:torso"].tolist() == [0.5, 2.0]


def test_the_wrapper_wants_mujoco():
    with pytest.raises(InputError, match="MujocoEnv expected"):
        MujocoContexts(gym.make("CartPole-v1"))
