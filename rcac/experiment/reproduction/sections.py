"""All sections, in the report's order."""

from rcac.experiment.reproduction import (
    best_policy,
    cartpole,
    curves,
    models,
    rate,
    river_swim,
    step_sizes,
    switch,
    tradeoff,
    wall_clock,
)
from rcac.experiment.reproduction.section import Section

SECTIONS: dict[str, Section] = {
    module.SECTION.name: module.SECTION
    for module in (step_sizes, river_swim, wall_clock, best_policy, curves, rate, cartpole, tradeoff, switch, models)
}
