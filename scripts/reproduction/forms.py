"""A section in three forms: as we set the methods, with the paper's objective, and with all of the paper's own settings.

A form changes some methods only; a section computes these anew and takes the others over from our form.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rcac import registry
from rcac.report.tables import markdown
from rcac.uncertainty.base import Uncertainty
from rcac.uncertainty.kl import KLPenalty
from reproduction import tabular
from reproduction.section import Claim, PieceCache, Result, Section


class Form(NamedTuple):
    words: str
    methods: tuple[str, ...]  # what it changes


OURS = "negated"
FORMS = {
    OURS: Form("c_0 = −r", tuple(tabular.METHODS)),
    "complement": Form("c_0 = r_max − r", ("rnpg", "rppg")),
    "paper": Form("preset=paper", ("rnpg", "rppg", "epirc_pgs")),
}
ABOUT = (
    "Every method that a form changes, in all forms: the objective as −r, as r_max − r (the paper's), and all of the paper's own "
    "settings (`preset=paper`: its step size and λ, untuned, random start of RNPG, EPIRC-PGS restarted at every level, the linear KL "
    "penalty). Bold: breaks its budget."
)


def changed(form: str, methods: Iterable[str]) -> list[str]:
    return [method for method in methods if method in FORMS[form].methods]


def label(form: str, text: str) -> str:
    return text if form == OURS else f"{text}, {form}"


def options(form: str, method: str, problem: str) -> dict[str, Any]:
    """Of `rcac.solve`."""
    if form == "complement":
        return {"objective": "complement"}
    if form == "paper":
        here = registry.preset("paper", "env", problem).get("algo", {})
        return here | registry.preset("paper", "algo", method)
    return {}


def in_form(form: str, uncertainty: Uncertainty) -> Uncertainty:
    """The paper's evaluator does not pay the KL penalty's price."""
    if form == "paper" and isinstance(uncertainty, KLPenalty):
        return KLPenalty(uncertainty.temperature, "linear")
    return uncertainty


def merged(ours: list[dict[str, Any]], others: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """Our rows, with those of a form in the place of those that agree in these keys."""
    new = {tuple(row[key] for key in keys): row for row in others}
    return [new.get(tuple(row[key] for key in keys), row) for row in ours]


def pair(values: Iterable[float], feasible: bool) -> str:
    text = ", ".join(f"{value:.2f}" for value in values)
    return text if feasible else f"**{text}**"


Answers = dict[tuple[str, ...], str]  # by what stands in the first columns


def in_forms(
    section: Section,
    compute: Callable[[dict[str, Any], PieceCache, str, Result | None], Result],  # the last: ours
    columns: list[str],  # the first ones
    answers: Callable[[Result], Answers],
) -> Section:
    def compute_all(settings: dict[str, Any], cache: PieceCache) -> Result:
        ours = compute(settings, cache, OURS, None)
        return {form: ours if form == OURS else compute(settings, cache, form, ours) for form in FORMS}

    def tables(result: Result) -> str:
        found = {form: answers(result[form]) for form in FORMS}
        rows = [
            [*key, *(found[form][key] for form in FORMS)]
            for key in found[OURS]
            if any(found[form][key] != found[OURS][key] for form in FORMS)
        ]
        beside = markdown([*columns, *(form.words for form in FORMS.values())], rows, left=len(columns))
        return f"{section.tables(result[OURS])}\n\n{ABOUT}\n\n{beside}"

    def claims(result: Result) -> list[Claim]:
        """Ours, each followed by those of other forms that say something else. What we claim ourselves is not about
        the paper's settings."""
        others = {form: {c.claim: c for c in section.claims(result[form])} for form in FORMS if form != OURS}
        found = []
        for claim in section.claims(result[OURS]):
            also = [
                (FORMS[form].words, by[claim.claim])
                for form, by in others.items()
                if by.get(claim.claim, claim) != claim
                and not (form == "paper" and claim.claim.startswith(("(Ours)", "Our ")))
            ]
            named = [(FORMS[OURS].words, claim), *also] if also else [("", claim)]
            found += [c._replace(claim=f"{c.claim} ({words})" if words else c.claim) for words, c in named]
        return found

    return section._replace(
        compute=compute_all, tables=tables, figures=lambda result: section.figures(result[OURS]), claims=claims
    )
