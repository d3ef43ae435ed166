"""All sections, in the report's order."""

from reproduction import (
    best_policy,
    cartpole,
    curves,
    models,
    noise,
    other_sets,
    rate,
    river_swim,
    robust,
    step_sizes,
    switch,
    tradeoff,
    velocity,
    velocity_tuning,
    wall_clock,
)
from reproduction.section import Section

SECTIONS: dict[str, Section] = {
    module.SECTION.name: module.SECTION
    for module in (
        *(step_sizes, river_swim, wall_clock, best_policy, curves, rate, other_sets, noise),
        *(cartpole, tradeoff, robust, velocity_tuning, velocity, switch, models),
    )
}
