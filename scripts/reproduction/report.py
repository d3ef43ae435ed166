"""The report: verdicts first, then every section with its tables and figures. What was not computed is said so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rcac.report import style
from rcac.report.tables import markdown
from rcac.runs.folder import replace_file, versions
from reproduction.section import Claim, Result, Section
from reproduction.store import Store

QUICK = """\
This is the quick setting: it shows that everything works. Trainings are far too short and tuning too coarse to judge
the claims; `python scripts/reproduce.py full` does.
"""

OPENING = """\
# The paper's experiments, made again

Setting: `{setting}`. {versions}. Made by `python scripts/reproduce.py {setting}`, which continues where it was
stopped. Rewards and costs are discounted worst cases by one exact evaluator, unless a section says otherwise; budgets
are met or they are not, without tolerance. A verdict is about this implementation, with these settings.
"""


def write(
    store: Store,
    sections: list[Section],
    setting: str,
    folder: Path,
    settings: Callable[[Section], dict[str, Any]] | None = None,  # of each section; those of `setting` unless given
) -> Path:
    """`report.md` in `folder`, which holds the store's, of what the store has; a PNG and a PDF of every figure there."""
    pictures = store.folder.relative_to(folder)
    chapters, verdicts = [], []
    for section in sections:
        result = store.result(section, settings(section) if settings else section.settings[setting])
        if result is None:
            command = (
                f"python scripts/reproduce.py {section.name}" if setting == "full" else f"… {setting} {section.name}"
            )
            chapters.append(f"## {section.title}\n\nNot computed yet: `{command}`.\n")
            continue
        found = section.claims(result)
        verdicts += [[section.title, *claim] for claim in found]
        chapters.append(_chapter(section, result, found, folder, pictures))
    made = ", ".join(f"{name} {version}" for name, version in versions().items() if version)
    summary = markdown(["section", "claim", "verdict", "what was measured"], verdicts, left=4)
    opening = OPENING.format(setting=setting, versions=made) + ("" if setting == "full" else "\n" + QUICK)
    text = "\n".join([opening, "## Verdicts\n", summary, "", *chapters])
    path = folder / "report.md"
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode())
    return path


def _chapter(section: Section, result: Result, found: list[Claim], folder: Path, pictures: Path) -> str:
    links = []
    for name, fig in section.figures(result).items():
        style.save(fig, folder / pictures, name)
        links.append(f"![{section.title}]({(pictures / name).as_posix()}.png)\n")
    judged = [f"- *{claim.verdict}*: {claim.claim}. {_sentence(claim.evidence)}" for claim in found]
    return "\n".join([f"## {section.title}\n", section.about, "", *judged, "", *links, section.tables(result), ""])


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "."
