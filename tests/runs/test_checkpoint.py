"""Checkpoints: what is saved comes back exactly, what was tampered with does not come back at all."""

import hashlib
import json
import math
import os
import pickle
import random
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_hash import state_hash

from rcac.errors import InputError
from rcac.learner import State
from rcac.runs import checkpoint, encoding
from rcac.runs.checkpoint import DATA, MANIFEST, TENSORS, load_latest, save

IDENTITY = {"env": "toy", "algo": "descent", "shapes": {"x": [3]}, "rcac": "0.1.0"}
FAULTS = Path(__file__).parents[1] / "faults"


def state_at(position: int) -> State:
    rng = np.random.default_rng(position)
    return State({"x": rng.normal(size=(3, 5)), "n": np.array(position)}, {"rng": rng.bit_generator.state})


def two_checkpoints(folder: Path) -> Path:
    """Checkpoints 10 and 20; the folder of the second."""
    save(folder, 10, state_at(10), identity=IDENTITY, keep=2)
    return save(folder, 20, state_at(20), identity=IDENTITY, keep=2)


def reseal(path: Path, change) -> None:
    """An attacker's manifest: changed, and with hashes and digest that fit."""
    body = json.loads((path / MANIFEST).read_text())
    del body["digest"]
    for name, entry in body["files"].items():
        if (path / name).stat().st_size < 1 << 24:
            content = (path / name).read_bytes()
            entry |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    change(body)
    (path / MANIFEST).write_bytes(checkpoint._seal(body))


def unchanged(body: dict) -> None:
    pass


def falls_back(folder: Path, reason: str = "") -> None:
    """Checkpoint 20 is not accepted, that is said, and 10 is used."""
    loaded = load_latest(folder, IDENTITY)
    assert loaded.position == 10
    assert state_hash(loaded.state) == state_hash(state_at(10))
    assert len(loaded.skipped) == 1
    assert loaded.skipped[0].startswith("checkpoint 000000000020 is damaged")
    assert reason in loaded.skipped[0]


# What is saved comes back

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**2000), 2**2000) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def same(a: object, b: object) -> bool:
    """Equal in type, value, sign of zero, and NaN for NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return a == b


@given(st.dictionaries(st.text(), plain, max_size=5))
def test_plain_data_round_trip(data):
    assert same(encoding.decode_data(encoding.encode_data(data)), data)


@pytest.mark.parametrize("dtype", encoding.DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 0, 3), (2, 3, 4)])
def test_array_round_trip(tmp_path, dtype, shape):
    raw = np.random.default_rng(0).integers(0, 256, size=(*shape, np.dtype(dtype).itemsize), dtype=np.uint8)
    array = (raw[..., 0] > 127) if dtype == "bool" else raw.view(dtype)[..., 0]  # any bits, NaN payloads included
    save(tmp_path, 0, State({"a": array}, {}), identity={}, keep=1)
    back = load_latest(tmp_path, {}).state.tensors["a"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


def test_arrays_of_any_memory_order(tmp_path):
    base = np.arange(24.0).reshape(4, 6)
    tensors = {"t": base.T, "s": base[::2, ::-3], "f": np.asfortranarray(base), "big": base.astype(">f8")}
    save(tmp_path, 0, State(tensors, {}), identity={}, keep=1)
    back = load_latest(tmp_path, {}).state.tensors
    for name, array in tensors.items():
        np.testing.assert_array_equal(back[name], array)


def test_a_generator_continues_its_stream(tmp_path):
    rng = np.random.default_rng(1)
    rng.normal(size=3)
    save(tmp_path, 0, State({}, {"rng": rng.bit_generator.state}), identity={}, keep=1)
    other = np.random.default_rng(2)
    other.bit_generator.state = load_latest(tmp_path, {}).state.data["rng"]
    np.testing.assert_array_equal(other.normal(size=100), rng.normal(size=100))


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ({"a": [1, (2, 3)]}, r"data\['a'\]\[1\]: tuple"),
        ({"a": {1: 2}}, r"data\['a'\]: key 1"),
        ({"a": np.int64(3)}, r"data\['a'\]: int64"),
        ({"a": 1 << 5000}, r"data\['a'\]: integer of 5001 bits"),
    ],
)
def test_what_json_would_change_is_refused(tmp_path, data, where):
    with pytest.raises(InputError, match=where):
        save(tmp_path, 0, State({}, data), identity={}, keep=1)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("array", [np.array([{}]), np.array(["a"]), np.array([1j])])
def test_arrays_that_cannot_be_stored_are_refused(tmp_path, array):
    with pytest.raises(InputError, match=r"tensors\['w'\]: dtype "):
        save(tmp_path, 0, State({"w": array}, {}), identity={}, keep=1)


def test_state_hash_sees_every_part():
    base = State({"a": np.zeros(2), "b": np.ones(2)}, {"k": 1.0})
    others = [
        State({"a": np.zeros(2), "c": np.ones(2)}, {"k": 1.0}),
        State({"a": np.zeros(2, np.int64), "b": np.ones(2)}, {"k": 1.0}),
        State({"a": np.zeros((2, 1)), "b": np.ones(2)}, {"k": 1.0}),
        State({"a": np.array([0.0, -0.0]), "b": np.ones(2)}, {"k": 1.0}),
        State({"a": np.zeros(2), "b": np.ones(2)}, {"k": np.nextafter(1.0, 2.0)}),
    ]
    assert len({state_hash(state) for state in [base, *others]}) == 6
    assert state_hash(State(dict(reversed(base.tensors.items())), {"k": 1.0})) == state_hash(base)


# Which ones are kept


def kept(folder: Path) -> list[int]:
    return sorted(int(name) for name in os.listdir(folder / "checkpoints"))


def test_the_last_and_the_best_feasible_are_kept(tmp_path):
    scores = {1: None, 2: -5.0, 3: -1.0, 4: None, 5: -2.0, 6: float("nan"), 7: None}
    seen = []
    for position, score in scores.items():
        save(tmp_path, position, state_at(position), identity={}, keep=2, score=score)
        seen.append(kept(tmp_path))
    assert seen == [[1], [1, 2], [2, 3], [3, 4], [3, 4, 5], [3, 5, 6], [3, 6, 7]]
    assert checkpoint.best(tmp_path).name == f"{3:012d}"
    assert checkpoint.latest(tmp_path).name == f"{7:012d}"
    with pytest.raises(InputError, match="keep: 0 given"):
        save(tmp_path, 8, state_at(8), identity={}, keep=0)


def test_a_damaged_checkpoint_hides_no_better_one(tmp_path):
    for position, score in ((10, 5.0), (20, 7.0), (30, None)):
        save(tmp_path, position, state_at(position), identity=IDENTITY, keep=3, score=score)
    (tmp_path / "checkpoints" / f"{10:012d}" / MANIFEST).write_text("{")
    assert checkpoint.best(tmp_path) == tmp_path / "checkpoints" / f"{20:012d}"


def test_saving_again_replaces(tmp_path):
    two_checkpoints(tmp_path)
    save(tmp_path, 20, state_at(21), identity=IDENTITY, keep=2)
    assert state_hash(load_latest(tmp_path, IDENTITY).state) == state_hash(state_at(21))
    assert kept(tmp_path) == [10, 20]


@pytest.mark.parametrize("name", [".saving", ".removing"])
@pytest.mark.parametrize("make", [Path.touch, os.mkfifo, lambda path: path.symlink_to("/nowhere")])
def test_whatever_lies_in_the_way_of_saving_is_cleared(tmp_path, name, make):
    two_checkpoints(tmp_path)
    make(tmp_path / "checkpoints" / name)
    (tmp_path / "checkpoints" / f"{30:012d}").touch()
    (tmp_path / "checkpoints" / f"{20:012d}.damaged").symlink_to("/nowhere")
    checkpoint.set_aside_after(tmp_path, 10)
    save(tmp_path, 30, state_at(30), identity=IDENTITY, keep=2)
    assert sorted(os.listdir(tmp_path / "checkpoints")) == [
        f"{10:012d}", f"{20:012d}.damaged", f"{30:012d}", f"{30:012d}.damaged"
    ]  # fmt: skip
    assert load_latest(tmp_path, IDENTITY).position == 30


def test_what_lies_beyond_is_set_aside(tmp_path):
    two_checkpoints(tmp_path)
    for _ in range(2):
        checkpoint.set_aside_after(tmp_path, 10)
        assert sorted(os.listdir(tmp_path / "checkpoints")) == [f"{10:012d}", f"{20:012d}.damaged"]
        assert load_latest(tmp_path, IDENTITY).skipped == []
        save(tmp_path, 20, state_at(20), identity=IDENTITY, keep=2)


# Damage


def test_500_truncations_and_500_flipped_bits(tmp_path):
    path = two_checkpoints(tmp_path)
    originals = {name: (path / name).read_bytes() for name in (TENSORS, DATA, MANIFEST)}
    draw = random.Random(0)
    for _ in range(500):
        name = draw.choice(list(originals))
        content = originals[name]
        (path / name).write_bytes(content[: draw.randrange(len(content))])
        falls_back(tmp_path)
        flipped = bytearray(content)
        flipped[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        (path / name).write_bytes(flipped)
        falls_back(tmp_path)
        (path / name).write_bytes(content)
    assert load_latest(tmp_path, IDENTITY).position == 20


def test_every_byte_of_the_manifest_counts(tmp_path):
    path = two_checkpoints(tmp_path)
    content = (path / MANIFEST).read_bytes()
    for index in range(len(content)):
        flipped = bytearray(content)
        flipped[index] ^= 1 << index % 8
        (path / MANIFEST).write_bytes(flipped)
        with pytest.raises(checkpoint.Damaged):
            checkpoint.load(path, IDENTITY)
    for appended in (b" ", b"\n", b"\0"):
        (path / MANIFEST).write_bytes(content + appended)
        falls_back(tmp_path)


def test_a_checkpoint_under_another_name_is_refused(tmp_path):
    path = two_checkpoints(tmp_path)
    shutil.copytree(path, path.with_name(f"{30:012d}"))
    loaded = load_latest(tmp_path, IDENTITY)
    assert loaded.position == 20
    assert "000000000030" in loaded.skipped[0]


@pytest.mark.parametrize("name", [TENSORS, DATA, MANIFEST])
def test_missing_and_linked_files(tmp_path, name):
    path = two_checkpoints(tmp_path)
    (path / name).rename(tmp_path / "elsewhere")
    falls_back(tmp_path, "expected")
    (path / name).symlink_to(tmp_path / "elsewhere")  # the right bytes, but not ours to follow
    falls_back(tmp_path, name)
    (path / name).unlink()
    os.mkfifo(path / name)  # must not be waited for
    falls_back(tmp_path, "not a regular file")


def test_a_linked_checkpoint_is_refused(tmp_path):
    path = two_checkpoints(tmp_path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    falls_back(tmp_path, "not a folder")
    save(tmp_path, 20, state_at(20), identity=IDENTITY, keep=2)
    assert load_latest(tmp_path, IDENTITY).position == 20
    assert (tmp_path / "elsewhere" / MANIFEST).exists()


def test_none_left(tmp_path):
    with pytest.raises(InputError, match="no usable checkpoint; none was written"):
        load_latest(tmp_path, IDENTITY)
    path = two_checkpoints(tmp_path)
    for damaged in (path, path.with_name(f"{10:012d}")):
        (damaged / DATA).write_bytes(b"")
    with pytest.raises(InputError, match=r"no usable checkpoint; checkpoint 0+20 is damaged .*checkpoint 0+10 is dam"):
        load_latest(tmp_path, IDENTITY)


# Malice: the manifest fits, the content is hostile


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("name", [TENSORS, DATA])
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_is_not_executed(tmp_path, name, protocol):
    path = two_checkpoints(tmp_path)
    (path / name).write_bytes(pickle.dumps(Evil(tmp_path / "executed"), protocol))
    reseal(path, unchanged)
    falls_back(tmp_path, name)
    assert not (tmp_path / "executed").exists()
    pickle.loads((path / name).read_bytes())
    assert (tmp_path / "executed").exists()  # it would have been


def test_a_further_file_is_refused(tmp_path):
    path = two_checkpoints(tmp_path)
    (path / "extra.pkl").write_bytes(pickle.dumps(Evil(tmp_path / "executed")))
    falls_back(tmp_path, "extra.pkl")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "..", "sub/state.json"])
@pytest.mark.parametrize("instead", [True, False])
def test_a_path_in_the_manifest_is_refused(tmp_path, name, instead):
    path = two_checkpoints(tmp_path)
    (tmp_path / "secret").write_text("secret")
    entry = {"size": 6, "sha256": hashlib.sha256(b"secret").hexdigest()}

    def change(body: dict) -> None:
        if instead:
            del body["files"][DATA]
        body["files"][name] = entry

    reseal(path, change)
    falls_back(tmp_path, "not the manifest")


def claim(name: str, size: object):
    return lambda body: body["files"][name].update(size=size)


@pytest.mark.parametrize("size", [10**15, 10**30, -1, 0, 1.5, True, None, "8", [8]])
@pytest.mark.parametrize("name", [TENSORS, DATA])
def test_a_false_size_is_refused(tmp_path, name, size):
    path = two_checkpoints(tmp_path)
    reseal(path, claim(name, size))
    falls_back(tmp_path)


@pytest.mark.parametrize(("name", "size"), [(TENSORS, 1 << 40), (DATA, 1 << 30), (MANIFEST, 1 << 30)])
def test_a_huge_file_is_refused_unread(tmp_path, name, size):
    path = two_checkpoints(tmp_path)
    os.truncate(path / name, size)  # sparse
    if name != MANIFEST:
        reseal(path, claim(name, size))
    start = time.process_time()
    limit = encoding.LIMITS.get(name, checkpoint.MANIFEST_LIMIT)
    falls_back(tmp_path, f"at most {limit} expected")
    assert time.process_time() - start < 1


JSON_BOMBS = {
    "nested lists": b'{"a": ' + b"[" * 300_000 + b"]" * 300_000 + b"}",
    "nested objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "just too deep": b'{"a": ' + b"[" * 65 + b"]" * 65 + b"}",
    "huge integer": b'{"a": ' + b"9" * 1_000_000 + b"}",
    "long integer": b'{"a": ' + b"9" * 1_001 + b"}",
    "long float": b'{"a": 0.' + b"9" * 1_000_000 + b"}",
    "not an object": b"[]",
    "other encoding": '{"a": 1}'.encode("utf-16"),
    "not text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("bomb", JSON_BOMBS.values(), ids=JSON_BOMBS.keys())
@pytest.mark.parametrize("name", [DATA, MANIFEST])
def test_json_bombs(tmp_path, name, bomb):
    path = two_checkpoints(tmp_path)
    (path / name).write_bytes(bomb)
    if name != MANIFEST:
        reseal(path, unchanged)
    start = time.process_time()
    falls_back(tmp_path, name)
    assert time.process_time() - start < 2


def safetensors_bytes(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


TENSOR_BOMBS = {
    "header of 2^60 bytes": safetensors_bytes(b"{}", length=1 << 60),
    "header of 2^64-1 bytes": safetensors_bytes(b"{}", length=(1 << 64) - 1),
    "shape of 2^62": safetensors_bytes(
        b'{"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,8]}}', b"8" * 8
    ),
    "product overflows": safetensors_bytes(
        b'{"a":{"dtype":"F64","shape":[4294967296,4294967296,2],"data_offsets":[0,0]}}'
    ),
    "offsets beyond the end": safetensors_bytes(b'{"a":{"dtype":"U8","shape":[900],"data_offsets":[0,900]}}', b"8" * 8),
    "unknown dtype": safetensors_bytes(b'{"a":{"dtype":"PICKLE","shape":[8],"data_offsets":[0,8]}}', b"8" * 8),
    "dtype of another library": safetensors_bytes(b'{"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}}', b"8" * 8),
    "nested header": safetensors_bytes(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    "empty": b"",
}


@pytest.mark.parametrize("bomb", TENSOR_BOMBS.values(), ids=TENSOR_BOMBS.keys())
def test_safetensors_bombs(tmp_path, bomb):
    path = two_checkpoints(tmp_path)
    (path / TENSORS).write_bytes(bomb)
    reseal(path, unchanged)
    falls_back(tmp_path, f"{TENSORS}: not in safetensors format")


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.pop("format"),
        lambda body: body.update(position=21),
        lambda body: body.update(score="1"),
        lambda body: body.update(identity=None),
        lambda body: body.update(files=[]),
        lambda body: body.update(more=1),
        lambda body: body["files"].pop(DATA),
        lambda body: body["files"].update({DATA: None}),
        lambda body: body["files"][DATA].update(sha256=None),
    ],
)
def test_a_manifest_of_another_form_is_refused(tmp_path, change):
    path = two_checkpoints(tmp_path)
    reseal(path, change)
    falls_back(tmp_path, "not the manifest of checkpoint")


# Another run's checkpoint


@pytest.mark.parametrize(
    ("key", "other"), [("env", "lake"), ("algo", "rppg"), ("shapes", {"x": [4]}), ("rcac", "9.9"), ("new", 1)]
)
def test_another_identity_is_refused_with_both_values(tmp_path, key, other):
    two_checkpoints(tmp_path)
    with pytest.raises(InputError) as refusal:
        load_latest(tmp_path, {**IDENTITY, key: other})
    assert f"{key}: {IDENTITY.get(key)!r} in the checkpoint, {other!r} now" in str(refusal.value)


def test_another_format_is_refused_with_both_values(tmp_path):
    path = two_checkpoints(tmp_path)
    reseal(path, lambda body: body.update(format=2))
    with pytest.raises(InputError, match="format 2 found, 1 expected"):
        load_latest(tmp_path, IDENTITY)


def test_an_identity_goes_through_json(tmp_path):
    save(tmp_path, 0, state_at(0), identity={"shape": (3, 4)}, keep=1)
    assert load_latest(tmp_path, {"shape": (3, 4)}).position == 0
    assert load_latest(tmp_path, {"shape": [3, 4]}).position == 0


# Interruptions


# The calls that one save makes, in the order of their kinds; the fifth fsync follows the rename.
@pytest.mark.parametrize(
    ("call", "nth"),
    [("mkdir", 2), *(("open", n) for n in (1, 2, 3)), *(("fsync", n) for n in (1, 2, 3, 4, 5)), ("rename", 1)],
)
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_whole_checkpoints_and_nothing_else(tmp_path, monkeypatch, call, nth, error):
    two_checkpoints(tmp_path)
    real, calls = getattr(os, call), 0

    def failing(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == nth:
            raise error
        return real(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(type(error)):
            save(tmp_path, 30, state_at(30), identity=IDENTITY, keep=2)
    last = 30 if (call, nth) == ("fsync", 5) else 20
    assert sorted(os.listdir(tmp_path / "checkpoints")) == [f"{p:012d}" for p in (10, 20, 30) if p <= last]
    loaded = load_latest(tmp_path, IDENTITY)
    assert (loaded.position, loaded.skipped) == (last, [])
    assert state_hash(loaded.state) == state_hash(state_at(last))


def test_killed_200_times_while_saving(tmp_path):
    """Nothing unreadable, nothing lost that was reported as saved, the best one kept, no rubbish in the end."""
    program = [sys.executable, str(FAULTS / "kill_during_save.py"), str(tmp_path), "200"]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["kills"] == 200
    assert result["inside"] >= 100  # the test bites: most kills hit a save
    assert result["saved"] >= 20  # and some saves came through


def test_checkpoints_do_not_load_torch():
    code = "import sys, rcac.runs.train, rcac.runs.checkpoint; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
