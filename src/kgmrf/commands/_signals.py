"""Rows that predict each other, as the samples of a signal do: their covariance is compared apart.

The next row says little about the covariance of a signal: an average of the last few rows forecasts
it best, whatever the covariance is. So what trackers report is judged on the mean of x x^T over the
next H = 2 tau rows, tau the integrated time of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import typer

from kgmrf._types import Numbers
from kgmrf.baselines import EuclideanEMA
from kgmrf.commands._run import Run, print_table
from kgmrf.commands._scores import against, lead_of, student
from kgmrf.io import Chunk
from kgmrf.model.integrated_time import LONGEST, THRESHOLD, integrated_time
from kgmrf.trackers.kgmrf import KGMRF

LIVES = (1, 4, 16, 64)
"""Half-lives of moving averages, in units of tau."""

FEWEST_BLOCKS = 8

AUTO = "time_scale=auto"

NEXT_ROW = "the next row, which is scored above, says little about the covariance of the signal"
REMEDY = 'KGMRF(time_scale="auto")'


def single_rows(run: Run) -> bool:
    """Whether the file holds rows of mean zero, one per step."""
    plain = run.given.window == 1 and run.given.mean == "zero" and not run.given.noise_floor
    return run.source.kind == "samples" and plain


def time_of(run: Run, first: list[Numbers]) -> float | None:
    """The integrated time of the first rows of a file; None where it is unknown."""
    if not single_rows(run):
        return None
    tau = integrated_time(np.concatenate(first)[:LONGEST].reshape(-1, run.source.d))
    return None if np.isnan(tau) else tau


def compare_blocks(run: Run, tau: float | None, skip: int | None) -> dict[str, Any] | None:
    """Covariances that trackers report before each block of H rows, ranked by how well they fit it.

    None where rows do not predict each other, a law was chosen, or the file has too few blocks.
    """
    if tau is None or tau < THRESHOLD or run.given.gains != "auto":
        return None
    again, length = Run(run.source, run.given, poses=False, most=run.most), max(2, round(2.0 * tau))
    field = _field(again, tau)
    seen, reported = _walk(again, field, length)
    first = (len(seen) + 4) // 5 if skip is None else -(-skip // length)
    if len(seen) - first < FEWEST_BLOCKS:
        return None
    # One number for all, so that scores compare: what such blocks are worth by their scatter.
    m = float(field[0][2].estimate().effective_samples)
    scores = [_scores(np.stack(ahead), np.stack(seen), m) for ahead in reported]
    scored = (np.arange(len(seen)) >= first) & np.isfinite([s for s, _ in scores]).all(axis=0)
    if not scored.any():
        return None
    rows = []
    for (name, settings, _), (score, gaussian) in zip(field, scores, strict=True):
        lead, within = lead_of((scores[0][0] - score)[scored])
        found = {"score": float(score[scored].mean()), "gaussian": float(gaussian[scored].mean())}
        about: dict[str, Any] = {"tracker": name, "settings": settings}
        rows.append({**about, **found, "lead": lead, "lead_within": within})
    rows.sort(key=lambda row: -row["score"])
    return {
        "rows_ahead": length,
        "blocks": len(seen),
        "scored": int(scored.sum()),
        "effective_samples": m,
        "rows": rows,
    }


def print_blocks(tau: float, found: dict[str, Any] | None) -> None:
    """What there is to say of the covariance of a signal."""
    typer.echo(f"rows predict each other (integrated time {tau:.0f} rows): {NEXT_ROW}")
    if found is None:
        typer.echo(
            f"for that, use {REMEDY}; here are too few blocks of {2.0 * tau:.0f} rows to rank"
        )
        return
    typer.echo(
        f"so here is what each reports before a block of {found['rows_ahead']} rows, scored on the "
        f"mean of x x^T over the block, best first; nats per independent sample, of which a block "
        f"has {found['effective_samples']:.1f}; {found['scored']} of {found['blocks']} blocks "
        "scored"
    )
    rows = [
        [
            row["tracker"],
            row["settings"],
            f"{row['score']:.4f}",
            f"{row['gaussian']:.3f}",
            f"{row['lead']:.3f} ± {row['lead_within']:.3f}" if row["lead"] else "",
        ]
        for row in found["rows"]
    ]
    print_table(["tracker", "settings", "score", "Gaussian", "ours ahead by"], rows)
    if found["rows"][0]["settings"] == AUTO:
        typer.echo(f"in Python that is {REMEDY}")


def _field(run: Run, tau: float) -> list[tuple[str, str, Any]]:
    """Name, settings and tracker of all that take part, ours first."""
    d, unit = run.source.d, run.unit
    field: list[tuple[str, str, Any]] = [
        ("KGMRF", AUTO, KGMRF(d, time_scale="auto", rank=None, time_unit=unit)),
        ("KGMRF", "time_scale=1", KGMRF(d, time_scale=1, time_unit=unit)),
    ]
    for times in LIVES:
        life = round(times * tau)
        average = EuclideanEMA(
            d, gain=1.0 - 2.0 ** (-1.0 / life), kind="covariance", time_unit=unit
        )
        field.append(("EuclideanEMA", f"half_life={life}", average))
    return field


def _walk(
    run: Run, field: list[tuple[str, str, Any]], length: int
) -> tuple[list[Numbers], list[list[Numbers]]]:
    """The mean of x x^T over each block, NaN where half of its rows are not whole, and what each
    tracker reported before it."""
    seen: list[Numbers] = []
    reported: list[list[Numbers]] = [[] for _ in field]
    unknown = np.full((run.source.d, run.source.d), np.nan)
    for block in _blocks(run, length):
        rows = block.values[~np.isnan(block.values).any(axis=1)]
        seen.append(rows.T @ rows / len(rows) if len(rows) > 0.5 * length else unknown)
        for found, (_, _, tracker) in zip(reported, field, strict=True):
            found.append(unknown if tracker.now is None else tracker.estimate().covariance)
            run.through(tracker.filter, block, fields=["log_likelihood"])
    return seen, reported


def _scores(ahead: Numbers, seen: Numbers, m: float) -> tuple[Numbers, Numbers]:
    """Student-t and Gaussian log-density of every block, nats per sample."""
    n, d = seen.shape[:2]
    log_det, distance = against(ahead, seen)
    gaussian = -0.5 * (log_det + distance + d * np.log(2.0 * np.pi))
    counts = np.full(n, m)
    return student(log_det, distance, counts, counts * d) / m, gaussian


def _blocks(run: Run, length: int) -> Iterator[Chunk]:
    """The rows of a file in blocks of this length; what is left at the end is none."""
    held: Chunk | None = None
    for chunk in run.chunks():
        held = chunk if held is None else _joined(held, chunk)
        while len(held.values) >= length:
            yield held.cut(0, length)
            held = held.cut(length, len(held.values))


def _joined(first: Chunk, second: Chunk) -> Chunk:
    def both(name: str) -> Any:
        one, other = getattr(first, name), getattr(second, name)
        return None if one is None or other is None else np.concatenate([one, other])

    return second._replace(values=both("values"), times=both("times"), places=both("places"))
