"""A digest of a learner's state."""

import hashlib
import json

import numpy as np

from rcac.learner import State


def state_hash(state: State) -> str:
    """SHA-256 of every array (name, dtype, shape, bytes) and of the plain data, in the order of their names."""
    digest = hashlib.sha256(json.dumps(state.data, sort_keys=True).encode())
    for name in sorted(state.tensors):
        array = np.asarray(state.tensors[name], order="C")
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode() + array.tobytes())
    return digest.hexdigest()
