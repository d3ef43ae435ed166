"""The figure of a certificate: what the contexts played cost, against the budget, and the bound at the worst one found."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rcac.contexts import Parameters
from rcac.report import contexts, style

if TYPE_CHECKING:
    from rcac.policies.certificate import Certificate


def draw(made: "Certificate", folder: Path) -> None:
    """Write `certificate.png` and `.pdf`."""
    box = Parameters(made.ranges)
    points = box.unit({name: np.array(values) for name, values in made.played.contexts.items()})
    costs = [
        contexts.CostOverContexts(
            label=cost.label,
            budget=cost.budget,
            points=points,
            means=np.array(means),
            worst=box.unit(cost.worst_context),
            worst_mean=cost.worst_mean,
            worst_bound=cost.worst_bound,
            title=f"{cost.label}: {'' if cost.certified else 'not '}certified, at most {cost.worst_bound:.4g} at the star",
        )
        for cost, means in zip(made.costs, made.played.means, strict=True)
    ]
    note = (
        f"Dots: {made.contexts} contexts from the law of the box, {made.episodes} episodes each, and those of the search. Map: mean "
        f"of contexts near by. Star: worst context found, mean of {made.final_episodes} fresh episodes; the bar reaches up to its "
        f"bound (all statements together {100 * made.confidence:g} %)."
    )
    style.save(contexts.figure(box, costs, note), folder, "certificate")
