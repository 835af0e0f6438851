"""The paper's claims about its experiments, judged by the committed results.

Each claim is a comparison of numbers, so its verdict follows from the results files alone.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from criteria import (
    Curves,
    Judge,
    alike,
    falls_to_guessing,
    improves,
    insensitive,
    kept,
    least,
    near_guessing,
    no_gain,
    slightly_more,
)


class Claim(NamedTuple):
    """A claim of the paper about one experiment.

    Attributes:
      experiment: Name of the results file.
      says: The claim.
      judge: Returns the measurement, and whether it agrees; None where the data do not decide.
      reason: Why the measurement disagrees.
    """

    experiment: str
    says: str
    judge: Judge
    reason: str = ""


CLAIMS = (
    Claim("har", "DUCA soon becomes insensitive to its privacy weight", insensitive("DUCA")),
    Claim(
        "har",
        "DUCA hides less than DUCA-MMD, and DUCA-MMD less than NN-MMD",
        least("DUCA", "DUCA-MMD", "NN-MMD", utility=0.9, agrees=lambda a, b, c: a > b > c),
    ),
    Claim(
        "har",
        "NN-MMD comes close to random guessing without losing much utility",
        near_guessing("NN-MMD", 0.97),
    ),
    Claim(
        "har",
        "at large weights utility and privacy fall to random guessing",
        falls_to_guessing("NN-MMD", utility=0.25),  # the largest activity is 0.19
    ),
    Claim("har", "NN-KDI and NN-MMD are alike", least("NN-MMD", "NN-KDI", utility=0.97, agrees=alike)),
    Claim(
        "har",
        "NN-WDN is a close second to them",
        least(
            "NN-MMD", "NN-KDI", "NN-WDN", utility=0.95, agrees=lambda a, b, c: min(a, b) < c < min(a, b) + 0.1
        ),
    ),
    Claim(
        "har",
        "NN-LSDN does worse than the other three",
        least(
            "NN-MMD",
            "NN-KDI",
            "NN-WDN",
            "NN-LSDN",
            utility=0.95,
            agrees=lambda a, b, c, d: d > max(a, b, c),
        ),
    ),
    Claim(
        "har",
        "NN-(RF)MMD hides slightly less than NN-MMD",
        least("NN-MMD", "NN-(RF)MMD", utility=0.97, agrees=slightly_more),
    ),
    Claim(
        "har",
        "more dense layers in the private network improve the trade-off",
        improves("NN-MMD", "NN-MMD, two layers", utility=(0.97, 0.978)),
    ),
    Claim(
        "hapt",
        "on raw frames DUCA-MMD gains very little over DUCA (the paper: on MHEALTH)",
        least("DUCA", "DUCA-MMD", utility=0.5, agrees=lambda *v: alike(*v, by=0.05)),
    ),
    Claim(
        "hapt",
        "on raw frames NN-MMD gains much over DUCA-MMD (the paper: on MHEALTH)",
        least("DUCA-MMD", "NN-MMD", utility=0.5, agrees=lambda a, b: b < a - 0.05),
        reason="splits differ by more than the methods do; with bandwidths that follow z (NN-MMD, "
        "scale-free) less is learnt at more utility",
    ),
    Claim(
        "hapt",
        "on raw frames the four objectives are very similar (the paper: on MHEALTH)",
        least("NN-MMD", "NN-KDI", "NN-WDN", "NN-LSDN", utility=0.5, agrees=lambda *v: alike(*v, by=0.05)),
    ),
    Claim(
        "hapt",
        "on raw frames NN-KDI has a slight edge over the other three (the paper: on MHEALTH)",
        least("NN-KDI", "NN-MMD", "NN-WDN", "NN-LSDN", utility=0.5, agrees=lambda a, *v: a < min(v)),
    ),
    Claim(
        "hapt",
        "on raw frames NN-(RF)MMD and NN-MMD are alike (the paper: on MHEALTH)",
        least("NN-MMD", "NN-(RF)MMD", utility=0.5, agrees=alike),
    ),
    Claim(
        "yaleb",
        "CNN-MMD, without a projection, is ineffective",
        least("CNN-MMD", utility=0.8, agrees=lambda a: a > 0.8),
    ),
    Claim(
        "yaleb",
        "SCNN-MMD keeps more utility than NN-MMD as privacy grows",
        kept("NN-MMD", "SCNN-MMD", leakage=(0.25, 0.4), agrees=lambda a, b: b > a),
    ),
    Claim(
        "yaleb",
        "SCNN-MMD and SCNN-KDI keep more utility at high privacy than SCNN-WDN and SCNN-LSDN",
        kept(
            "SCNN-MMD",
            "SCNN-KDI",
            "SCNN-WDN",
            "SCNN-LSDN",
            leakage=(0.25, 0.4),
            agrees=lambda a, b, c, d: min(a, b) > max(c, d),
        ),
        reason="on the second split KDI leaves four units of z alive at the least weight of the paper's "
        "range, and LSDN twelve at 4",
    ),
    Claim(
        "yaleb",
        "SCNN-(RF)MMD hides as much as SCNN-MMD",
        least("SCNN-MMD", "SCNN-(RF)MMD", utility=0.9, agrees=lambda *v: alike(*v, by=0.05)),
        reason="weights are a factor of two apart, so that the least leakage is coarse",
    ),
    Claim(
        "cmu_faces",
        "CNN-MMD has very limited success (the paper: on MeGlass)",
        least("CNN-MMD", utility=0.9, agrees=lambda a: a > 0.5),
    ),
    Claim(
        "cmu_faces",
        "SCNN-MMD has more utility than NN-MMD at any privacy (the paper: on MeGlass)",
        kept("NN-MMD", "SCNN-MMD", leakage=(0.1, 0.2), agrees=lambda a, b: b > a),
    ),
    Claim(
        "cmu_faces",
        "MMD, KDI, WDN and LSDN are all near the ideal (the paper: on MeGlass)",
        least("SCNN-MMD", "SCNN-KDI", "SCNN-WDN", "SCNN-LSDN", utility=0.9, agrees=lambda *v: max(v) <= 0.15),
        reason="WDN and LSDN were run at weights of 1 and 4, at which they still hide more as it grows",
    ),
    Claim(
        "cmu_faces",
        "SCNN-(RF)MMD hides slightly less than SCNN-MMD (the paper: on MeGlass)",
        least("SCNN-MMD", "SCNN-(RF)MMD", utility=0.9, agrees=slightly_more),
    ),
    *(
        Claim(
            name,
            "SCNN-KDI and SCNN-MMD are alike, with a slight edge for KDI",
            least("SCNN-KDI", "SCNN-MMD", utility=0.75, agrees=slightly_more),
            reason=reason,
        )
        for name, reason in (
            (
                "yaleb",
                "at the least weight of its range KDI leaves four units alive on the second split",
            ),
            ("cmu_faces", "KDI was run at one weight only"),
        )
    ),
    Claim(
        "har",
        "at low privacy WDN and LSDN do as MMD and KDI do",
        kept("NN-MMD", "NN-KDI", "NN-WDN", "NN-LSDN", leakage=(0.7,), agrees=alike),
    ),
    Claim(
        "har",
        "at high privacy WDN and LSDN may keep less utility than MMD and KDI",
        kept(
            "NN-MMD",
            "NN-KDI",
            "NN-WDN",
            "NN-LSDN",
            leakage=(0.12,),
            agrees=lambda a, b, c, d: min(a, b) > min(c, d),
        ),
    ),
    *(
        Claim(
            name, "discriminator networks improve nothing over the closed forms", no_gain(networks, utility)
        )
        for name, networks, utility in (
            ("har", "NN", 0.95),
            ("hapt", "NN", 0.5),
            ("yaleb", "SCNN", 0.9),
            ("cmu_faces", "SCNN", 0.9),
        )
    ),
    Claim(
        "har",
        "a linear discriminator makes WDN poor",
        least("NN-WDN", "NN-WDN, linear discriminator", utility=0.9, agrees=lambda a, b: b > a + 0.1),
    ),
    Claim(
        "yaleb",
        "without orthonormality SCNN-MMD cannot do the utility task",
        kept(
            "SCNN-MMD",
            "SCNN-MMD, no orthonormality penalty",
            leakage=(1.0,),
            agrees=lambda a, b: b < a - 0.1,
        ),
    ),
)


def judged(results: Mapping[str, dict[str, Any]]) -> Iterator[tuple[Claim, str, str]]:
    """Yield each claim with the measurement and yes, no, "not run" or "cannot tell".

    Args:
      results: Contents of the results files by name.
    """
    for claim in CLAIMS:
        try:
            text, agrees = claim.judge(Curves(results[claim.experiment]))
        except KeyError:
            yield claim, "", "not run"
        else:
            if agrees is False and claim.reason:
                text = f"{text} ({claim.reason})"
            yield claim, text, "cannot tell" if agrees is None else "yes" if agrees else "**no**"


def table(results: Mapping[str, dict[str, Any]]) -> str:
    """Return the claims as Markdown."""
    lines = [
        "## The paper's claims and the measurements",
        "",
        "| experiment | the paper says | measured | agrees? |",
        "|---|---|---|---|",
    ]
    for claim, text, verdict in judged(results):
        lines.append(f"| {claim.experiment} | {claim.says} | {text} | {verdict} |")
    return "\n".join(lines)
