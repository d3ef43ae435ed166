"""`hydra/launcher=ray`: Hydra's joblib launcher on the nodes of a Ray cluster, which `RAY_ADDRESS` names (else Ray
starts one here). Ray offers itself to joblib as a backend; Hydra's launcher asks for "loky", so that is its name."""

from typing import Any

from hydra.core.config_store import ConfigStore

LAUNCHER = "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"


def store_launcher() -> None:
    """With joblib's keys; as many jobs at a time as the cluster has processors."""
    node: dict[str, Any] = {"_target_": LAUNCHER, "n_jobs": -1, "pre_dispatch": "all", "batch_size": 1, "verbose": 0}
    ConfigStore.instance().store(group="hydra/launcher", name="ray", node=node, provider="rcac")


def use_ray() -> None:
    import joblib
    import ray
    from ray.util.joblib.ray_backend import RayBackend

    ray.init(ignore_reinit_error=True, log_to_driver=False)
    joblib.register_parallel_backend("loky", RayBackend)
