"""What a flight was, for a person: in the terminal, and as a page with pictures."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tyro

from rl.bridge.checks import SAID, Reason, said
from rl.bridge.log import flight, review
from rl.bridge.log.review import Lateness, Told
from rl.bridge.log.steps import Episode

MOST = 40  # states, and episodes, that a terminal tells


@dataclass(frozen=True)
class Report:
    """Say what a flight was: its states, how punctual all were, and what was limited."""

    log: tyro.conf.Positional[Path]  # of run --log
    out: Path | None = None  # an .html file with pictures, too, that is not there yet


def report(args: Report) -> None:
    if args.out and args.out.suffix != ".html":
        raise ValueError(f"--out {args.out} will be an .html file: give it that ending.")
    if args.out and args.out.exists():
        raise ValueError(f"--out {args.out} is there already: name another.")
    if args.out and not args.out.absolute().parent.is_dir():
        raise ValueError(f"--out {args.out} cannot be written: there is no folder for it.")
    told = review.of(flight.read(args.log), args.log)
    for name, text in lines(told, args.log):
        print(f"{name:9}{text}")
    if args.out:
        from rl.bridge.log import report_page

        report_page.write(args.out, told, args.log)
        print(f"out      {args.out}")


def lines(told: Told, path: Path) -> Iterator[tuple[str, str]]:
    """Names and what there is to say, states first."""
    yield from summary(told, path)
    yield "", ""
    for span in told.spans[:MOST]:
        yield f"{span.begin:7.2f}", f"{span.state:13}{span.end - span.begin:8.2f} s  {span.why}"
    if len(told.spans) > MOST:
        yield "", f"and {len(told.spans) - MOST} states more: --out has all"
    yield "", ""
    for number, episode in enumerate(told.episodes[:MOST]):
        yield ("episodes" if not number else ""), ended(told, number, episode)
    if len(told.episodes) > MOST:
        yield "", f"and {len(told.episodes) - MOST} episodes more: --out has all"
    yield from limited(told)


def summary(told: Told, path: Path) -> Iterator[tuple[str, str]]:
    about = told.flight.about
    setup, answers = about.setup, told.answers
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(about.start))
    yield "flight", f"{setup.spec.name}, {told.seconds:.1f} s from {began} UTC on, {path}"
    if not told.flight.whole:
        yield "note", "it was cut short, or is damaged: this is of what is whole"
    hz = setup.ticks / setup.spec.control_dt
    yield "ticks", f"{len(told.lived):,} at {hz:g} Hz, {told.missed:,} missed"
    yield "late", spread(told.late)
    if answers.asked:
        yield "policy", f"asked {answers.asked:,} times, {len(answers.took):,} answers at once"
    if answers.took:
        yield "took", spread(review.lateness(answers.took))
    if answers.late or answers.never:
        after = f", at most {1e3 * max(answers.late):.0f} ms after it was asked" * bool(
            answers.late
        )
        yield "answers", f"{len(answers.late):,} late{after}; {answers.never:,} never came"
    yield "loss", f"{told.loss:.2%} of the robot's states"
    if told.heat:
        yield "heat", f"{told.heat:.0f} degrees C, the hottest motor"
    for what, count in sorted(told.counts.items()):
        yield "unheard", f"{count:,} messages of the {what}"
    for word, count in told.refused.items():
        yield "refused", f"{word}, {count:,} times"


def spread(late: Lateness) -> str:
    p50, p99, most = (1e3 * x for x in late)
    return f"{p50:.2f} ms (99%: {p99:.2f} ms, most: {most:.2f} ms)"


def ended(told: Told, number: int, episode: Episode) -> str:
    dt = told.flight.about.setup.spec.control_dt
    human = f", {episode.human.mean():.0%} by a human" * bool(episode.human.any())
    how = said(episode.why) if episode.why else "it began anew, or the log ends"
    how = f"it fell: {how}" if episode.fell else how
    begin, count = episode.time[0], len(episode.time)
    return f"{number}: {begin:.2f} s on, {count * dt:.2f} s in {count:,} steps{human}; {how}"


def limited(told: Told) -> Iterator[tuple[str, str]]:
    for number, (reason, cut) in enumerate(told.cuts.items()):
        joints = ", ".join(f"{name} {share:.1%}" for name, share in cut.joints)
        named = f"{cut.share:.1%} of its periods by {SAID[Reason(reason)]}"
        yield ("limited" if not number else ""), f"{named}, most {joints}" if joints else named
