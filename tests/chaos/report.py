"""The one page about a chaos run, as text and as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

from tests.chaos.director import Played
from tests.chaos.fleet import Fleet
from tests.chaos.provider import MoodyProvider
from tests.chaos.verdict import allowed_requests
from tests.end_to_end.conftest import System

COLOURS = {
    "workers": "#c2410c",
    "broker": "#7c3aed",
    "database": "#1d4ed8",
    "provider": "#047857",
    "clock": "#a16207",
}


@dataclass(frozen=True)
class Report:
    """Figures of a run that has ended."""

    seed: int
    began_at: float
    ended_at: float
    played: Sequence[Played]
    problems: Sequence[str]
    tallies: Sequence[tuple[str, str]]
    curve: Sequence[tuple[float, int]]  # Unix time, documents indexed until then

    @property
    def verdict(self) -> str:
        return "Nothing lost, nothing twice, nothing stuck." if not self.problems else f"{len(self.problems)} PROBLEMS"


def gather(
    system: System,
    provider: MoodyProvider,
    fleet: Fleet,
    played: Sequence[Played],
    problems: Sequence[str],
    seed: int,
    began_at: float,
    ended_at: float,
) -> Report:
    """Read the figures from the database as it stands."""

    def counted(statement: str) -> str:
        return ", ".join(f"{count} {what}" for what, count in system.rows(statement))

    allowed = allowed_requests(system)
    tallies = [
        ("documents", counted("SELECT status, count(*) FROM documents GROUP BY status ORDER BY status DESC")),
        ("versions", counted("SELECT status, count(*) FROM document_versions GROUP BY status ORDER BY status DESC")),
        (
            "final failures",
            counted(
                "SELECT coalesce(failure_reason, failure_type), count(*) FROM indexing_attempts "
                "WHERE outcome = 'FAILED' GROUP BY 1 ORDER BY 2 DESC"
            ),
        ),
        (
            "attempts",
            counted(
                "SELECT coalesce('retried after ' || coalesce(failure_reason, failure_type), status), count(*) "
                "FROM indexing_attempts WHERE outcome IS DISTINCT FROM 'FAILED' GROUP BY 1 ORDER BY 2 DESC"
            ),
        ),
        ("chunks, each embedded once", str(system.one("SELECT count(*) FROM embeddings"))),
        ("requests to the provider", f"{sum(provider.asked.values())} of at most {sum(allowed.values())}"),
        ("workers started", f"{fleet.starts}, of which {len(fleet.deaths)} ended by themselves"),
    ]
    curve = [
        (float(at), place)
        for place, (at,) in enumerate(
            system.rows(
                "SELECT extract(epoch FROM indexed_at) FROM document_versions WHERE indexed_at IS NOT NULL ORDER BY 1"
            ),
            1,
        )
    ]
    return Report(seed, began_at, ended_at, played, problems, tallies, curve)


def as_text(report: Report) -> str:
    """The page in plain text."""
    lines = [
        f"Chaos with seed {report.seed}: {len(report.played)} harms in {report.ended_at - report.began_at:.0f} s. "
        f"{report.verdict}",
        "",
        *(f"{name:28} {value}" for name, value in report.tallies),
        "",
        "In seconds after a harm was mended: until the next document was indexed, and until the last of those in",
        "work when it began was at its end, retries included.",
        "",
        f"{'harm':30} {'times':>5} {'next: median':>13} {'longest':>8} {'all: median':>12} {'longest':>8}",
    ]
    for name in sorted({one.act.name for one in report.played}):
        of = [one for one in report.played if one.act.name == name]
        resumed = [one.resumed_at - one.mended_at for one in of]
        over = [max(0.0, one.over_at - one.mended_at) for one in of]
        lines.append(
            f"{name:30} {len(of):5} {median(resumed):13.1f} {max(resumed):8.1f} {median(over):12.1f} {max(over):8.1f}"
        )
    lines += ["", f"{'at s':>7} {'lasted':>7} {'next':>6} {'all':>6} {'in work':>8}  harm"]
    for one in sorted(report.played, key=lambda one: one.began_at):
        lines.append(
            f"{one.began_at - report.began_at:7.1f} {one.mended_at - one.began_at:7.1f} "
            f"{one.resumed_at - one.mended_at:6.1f} {max(0.0, one.over_at - one.mended_at):6.1f} {one.met:8}  "
            f"{one.act.name}"
        )
    return "\n".join([*lines, "", *report.problems]).rstrip() + "\n"


def as_svg(report: Report) -> str:
    """The page as a picture: a line per kind of harm, solid while it lasts, pale until all it met was at its end."""
    names = sorted({one.act.name for one in report.played}, key=lambda name: (touched(report, name), name))
    left, width, row, top, curve_height = 210, 940, 22, 190, 160
    total = report.ended_at - report.began_at
    height = top + row * len(names) + 40 + curve_height + 60

    def x(at: float) -> float:
        return left + max(0.0, at - report.began_at) / total * width

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 40} {height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="24" y="34" font-size="20" font-weight="bold">{escape(report.verdict)}</text>',
        f'<text x="24" y="56">{len(report.played)} harms in {total:.0f} s, seed {report.seed}. Solid: the harm lasts. '
        "Pale: until all that was in work when it began is at its end. Tick: next document indexed.</text>",
    ]
    for place, (name, value) in enumerate(tally for tally in report.tallies if tally[0] != "attempts"):
        parts.append(f'<text x="24" y="{82 + place * 17}">{escape(f"{name}: {value}")}</text>')
    for place, name in enumerate(names):
        y = top + place * row
        colour = COLOURS[touched(report, name)]
        parts.append(f'<text x="{left - 10}" y="{y + 12}" text-anchor="end" fill="{colour}">{escape(name)}</text>')
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y + 8}" y2="{y + 8}" stroke="#e5e7eb"/>')
        for one in report.played:
            if one.act.name != name:
                continue
            began, mended, over = x(one.began_at), x(one.mended_at), x(max(one.over_at, one.mended_at))
            parts.append(
                f'<rect x="{began:.1f}" y="{y + 2}" width="{over - began:.1f}" height="12" fill="{colour}" '
                'fill-opacity="0.25"/>'
                f'<rect x="{began:.1f}" y="{y + 2}" width="{max(2.0, mended - began):.1f}" height="12" '
                f'fill="{colour}"/><rect x="{x(one.resumed_at):.1f}" y="{y}" width="1.5" height="16" fill="#111827"/>'
            )
    parts += curve(report, x, top + row * len(names) + 30, curve_height, left, width)
    return "\n".join([*parts, "</svg>"]) + "\n"


def curve(report: Report, x: object, top: int, height: int, left: int, width: int) -> list[str]:
    """Documents indexed over time, with the time below."""
    assert callable(x)
    highest = max((count for _, count in report.curve), default=1)
    bottom = top + height
    points = " ".join(f"{x(at):.1f},{bottom - count / highest * height:.1f}" for at, count in report.curve)
    parts = [
        f'<text x="{left - 10}" y="{top + 12}" text-anchor="end">versions indexed: {highest}</text>',
        f'<line x1="{left}" x2="{left + width}" y1="{bottom}" y2="{bottom}" stroke="#9ca3af"/>',
        f'<polyline points="{left},{bottom} {points}" fill="none" stroke="#111827" stroke-width="1.5"/>',
    ]
    total = report.ended_at - report.began_at
    step = next(step for step in (10, 30, 60, 300, 600, 3600) if total / step <= 15 or step == 3600)
    for second in range(0, int(total) + 1, step):
        place = x(report.began_at + second)
        shown = f"{second} s" if step < 60 else f"{second // 60} min"
        parts.append(f'<text x="{place:.1f}" y="{bottom + 18}" text-anchor="middle" fill="#4b5563">{shown}</text>')
    return parts


def touched(report: Report, name: str) -> str:
    return next(one.act.touches for one in report.played if one.act.name == name)
