"""`rcac-evaluate certify=…`: what it prints and writes, whose box it takes, and errors in one line."""

import json
from types import SimpleNamespace

import pytest

import rcac
from rcac import cli
from rcac.policies import certify_command

QUICK = "contexts=6 episodes=2 search_episodes=32 final_episodes=16 num_envs=16"
TRAINING = {"total_steps": 1024, "num_envs": 4, "rollout_length": 64, "progress": False, "loggers": ["csv"]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run against ranges of its own, and one that knows of no contexts."""
    root = tmp_path_factory.mktemp("runs")
    robust, plain = root / "robust", root / "plain"
    rcac.train("rcac/CartPoleTradeoff-v0", algo="rcac_sqp", uncertainty={"wind": (-1, 1)}, folder=robust, **TRAINING)
    rcac.train("rcac/NoisyCartPole-v0", algo="cac", folder=plain, **TRAINING)
    return SimpleNamespace(root=root, robust=robust, plain=plain)


@pytest.fixture
def evaluate(capsys):
    def run(words: str) -> SimpleNamespace:
        with pytest.raises(SystemExit) as ended:
            cli.evaluate(words.split())
        said = capsys.readouterr()
        return SimpleNamespace(code=ended.value.code or 0, out=said.out, err=said.err)

    return run


def written(run) -> dict:
    return json.loads((run / "certificate.json").read_text())


def test_a_run_is_certified_over_its_own_box_and_against_its_own_budgets(runs, evaluate):
    done = evaluate(f"run={runs.robust} certify=true {QUICK} seed=3")
    assert done.code == 0
    saved = written(runs.robust)
    assert saved["ranges"] == {"wind": [-1.0, 1.0]}
    assert [(cost["label"], cost["budget"]) for cost in saved["costs"]] == [("cost", 200.0), ("steps lost", 10.0)]
    assert (saved["contexts"], saved["episodes"], saved["final_episodes"], saved["seed"]) == (6, 2, 16, 3)
    assert saved["search_episodes"] <= 32
    assert saved["policy"] == "stochastic"
    assert saved["policy_sha256"] == json.loads((runs.robust / "policy.json").read_text())["sha256"]
    assert len(saved["played"]["stage"]) == len(saved["played"]["means"][1]) == len(saved["played"]["contexts"]["wind"])
    for line in saved["statements"]:
        assert line in done.out
    assert done.out.splitlines()[-2:] == [
        str(runs.robust / "certificate.json"),
        str(runs.robust / "plots" / "certificate.png"),
    ]
    assert (runs.robust / "plots" / "certificate.pdf").is_file()
    # the same from Python, word for word
    made = rcac.certify(
        rcac.load_policy(runs.robust, seed=3), "rcac/CartPoleTradeoff-v0", uncertainty={"wind": (-1, 1)}, seed=3,
        contexts=6, episodes=2, search_episodes=32, final_episodes=16, num_envs=16,
    )  # fmt: skip
    assert made.statements() == saved["statements"]


def test_strict_says_it_by_its_exit_code(runs, evaluate):
    """16 episodes show nothing of a budget of 200; a budget beyond all that can be is certified."""
    assert evaluate(f"run={runs.plain} certify=strict {QUICK}").code == certify_command.NOT_CERTIFIED == 4
    assert written(runs.plain)["certified"] is False
    done = evaluate(f"run={runs.plain} certify=strict {QUICK} env.budgets=[1210]")
    assert done.code == 0
    assert written(runs.plain)["certified"] is True
    assert written(runs.plain)["changes"] == ["env.budgets=[1210]"]


def test_a_run_without_a_box_takes_what_is_given_or_the_environments(runs, evaluate):
    evaluate(f"run={runs.plain} certify=true {QUICK} deterministic=true")
    assert written(runs.plain)["ranges"] == {"noise_high": [0.0, 0.1], "wind": [-2.0, 2.0], "length": [0.5, 2.0, "log"]}
    assert written(runs.plain)["policy"] == "deterministic"
    for given in ("", "uncertainty=parameters "):
        done = evaluate(f"run={runs.plain} certify=true {QUICK} {given}uncertainty.ranges={{gravity:[0.9,1.1]}}")
        assert (done.code, written(runs.plain)["ranges"]) == (0, {"gravity": [0.9, 1.1]})
    evaluate(f"run={runs.robust} certify=true {QUICK} uncertainty.ranges={{mass:[0.5,2,log]}}")
    assert written(runs.robust)["ranges"] == {"mass": [0.5, 2.0, "log"]}


def test_a_cost_range_of_the_users_own_counts(runs, evaluate):
    evaluate(f"run={runs.robust} certify=true {QUICK} cost_ranges=[[0,5000],null]")
    assert [cost["cost_range"] for cost in written(runs.robust)["costs"]] == [[0.0, 5000.0], [0.0, 500.0]]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("certify=maybe", "certify: 'maybe' given, true, strict or false expected"),
        ("certify=1", "certify: 1 given, true, strict or false expected"),
        ("certify=true sweep.wind=1", "certify: true given with sweep.wind, one or the other expected"),
        ("certify=true uncertainty=ipm", "uncertainty: ipm given, parameters expected with certify"),
        ("certify=true kernels=3", "kernels: no such key, known are"),
        ("certify=false confidence=0.9", "confidence: no such key, known are"),
        ("certify=true confidence=1", "confidence: 1.0 given, a number in (0, 1) expected"),
        ("certify=true contexts=0", "contexts: 0 given, a whole number ≥ 1 expected"),
        ("certify=true search_episodes=few", "search_episodes: 'few' given, a whole number expected"),
        ("certify=true num_envs=0", "num_envs: 0 given, a whole number ≥ 1 expected"),
        ("certify=true cost_ranges=[[0,1],[0,1]]", "cost_ranges: [[0, 1], [0, 1]] given, 1 expected"),
        (
            f"certify=true {QUICK} cost_ranges=[[0,0.001]]",
            "cost_ranges[0]: [0, 0.001] given, but an episode cost between",
        ),
        ("certify=true uncertainty.ranges={breeze:[0,1]}", "uncertainty.ranges: context: 'breeze' given, one of"),
        ("certify=true uncertainty.ranges={wind:[1,0]}", "uncertainty.ranges.wind: [1, 0] given, finite numbers"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(runs, evaluate, words, line):
    (runs.plain / "certificate.json").unlink(missing_ok=True)
    done = evaluate(f"run={runs.plain} {words}")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(line), done.err
    assert done.err.count("\n") == 1
    assert not (runs.plain / "certificate.json").exists()


def test_only_one_run_at_a_time(runs, evaluate):
    done = evaluate(f"run={runs.root} certify=true")
    assert (done.code, done.err) == (2, f"run: '{runs.root}' given, the folder of one run expected with certify\n")


def test_help_names_every_key_and_the_exit_code(evaluate):
    said = evaluate("--help").out
    for key in vars(certify_command.CertifySettings()):
        assert f"\n  {key}=" in said
    assert "4 with certify=strict if a budget is not certified" in said
