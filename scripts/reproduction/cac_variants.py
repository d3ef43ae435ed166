"""Two variants of the paper's CAC, which it trains differently from the robust methods.

"For CAC, we do not train the robust version": not robust can mean without the norm, or without the noise. CAC is trained
both ways, and so is RCAC, to separate the effect of the noise from that of the norm.
"""

from collections.abc import Mapping

from rcac.report import style
from rcac.report.tables import markdown
from reproduction.deep import BUDGET, TRAINED, format_interval, mean_scores, over_seeds
from reproduction.perturbed import AS_TRAINED, Runs, seed_costs
from reproduction.section import BUDGET_RULE, Claim, decide

WITHOUT_NOISE = "env.kwargs.noise_high=0"  # in training; tests set their own
RULE = (
    "the paper's text can be read in two ways, CAC trained with the noise but without the norm, and CAC trained without "
    "noise, both tested at δ .04; the claim holds if both break the budget, in part if one does and one does not; "
    f"{BUDGET_RULE}"
)


def table(methods: Mapping[str, Runs], clean: Mapping[str, Runs]) -> str:
    """The methods that were trained without noise as well, both ways."""
    rows = []
    for algo, own in clean.items():
        for runs, trained in ((methods[algo], TRAINED), (own, 0.0)):
            scores = [
                format_interval(x) for strength in (trained, TRAINED) for x in over_seeds(runs, "noise", strength)
            ]
            rows.append(
                [style.look(algo).name, f"δ {trained:g}", *scores, f"{_seeds_over_budget(runs)} of {len(runs)}"]
            )
    header = ["method", "trained at", "return as trained", "cost as trained", "return at δ .04", "cost at δ .04"]
    return (
        "Trained with the noise and without it, with the same settings and seeds; the last column counts the seeds whose "
        "cost at δ .04 is above the budget.\n\n" + markdown([*header, "seeds above"], rows, left=2)
    )


def _seeds_over_budget(runs: Runs) -> int:
    """Seeds whose cost at δ .04 is above the budget."""
    return sum(mean_scores(run, "noise", TRAINED)[1] > BUDGET for run in runs)


def claim(methods: Mapping[str, Runs], clean: Mapping[str, Runs]) -> Claim:
    """The verdict by `RULE`."""
    trained = {"CAC trained with the noise": methods["cac"], "trained without noise it": clean["cac"]}
    if "rcac" in clean:
        trained["RCAC trained without noise"] = clean["rcac"]
    costs = {words: seed_costs(runs, AS_TRAINED) for words, runs in trained.items()}
    breaks = [found.breaks for found in costs.values()]
    costs_text = "; ".join(f"{words} costs {found} at δ .04" for words, found in costs.items())
    cause = _cause(*breaks) if "rcac" in clean else ""
    return Claim("CAC, which is not robust, breaks the budget in the test", decide(breaks[:2]), costs_text + cause)


def _cause(noisy: bool | None, clean: bool | None, rcac: bool | None) -> str:
    """Why CAC breaks its budget or meets it, judged by whether RCAC trained without noise breaks it."""
    if clean is None or rcac is None:
        return ", so these seeds do not show the cause"
    if not clean:
        return ", although it has the norm" if rcac else ", so it holds it as well"
    if rcac:
        why = ": what breaks it is training without the noise, not the missing norm" if noisy is False else ""
        return f", so it breaks it as well{why}"
    return ", so it holds it, thanks to its norm"
