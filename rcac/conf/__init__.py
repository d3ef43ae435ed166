"""Hydra's search path `pkg://rcac.conf`."""
