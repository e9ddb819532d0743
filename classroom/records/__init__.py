"""Recorded results of the claims, for lessons and slides; `lab.engine` writes them.

# what data/results says: verdict, figures of every seed, configuration
records.record("gelu-converges")
records.summary("gelu-converges")     # the same in a few lines
records.live("gelu-converges", {...}) # what a lesson's own run says under the same rule
records.beside("bert-size", {...})    # chosen ones, as a lesson shows them
records.recorded("bert-size", "...")  # one of them, with its interval
records.by_seed("bert-size", {...})   # the values of all seeds, for bars with intervals
records.curve("attention-time", {256: "..."})  # means and intervals, for a line with its band
records.percent([True, False])        # a share of right answers, with its interval
records.share(0.5, 80)                # the same of a share that is known
records.mean([0.1, 0.3])              # a mean with its interval
records.resampled([[1, 0], [1, 1]])   # samples x tests, with an interval over both

Its files:

    ledger.py    the claims of the lessons
    rules.py     the rule of a claim, applied to figures
    record.py    the record of a claim
    figures.py   a measured quantity with its interval
    report.py    a record as a sentence and a table; all of them as a report
    public.py    results on public tasks
    evidence.py  docs/evidence.md, written from all of them
"""
# ruff: noqa: F401  the names are the package's

from classroom.intervals import percent
from classroom.records.figures import Figure, Figures, Verdict
from classroom.records.ledger import Claim, claim, of_lesson
from classroom.records.record import Record, record
from classroom.records.report import (
    beside,
    by_seed,
    curve,
    live,
    mean,
    recorded,
    resampled,
    share,
    summary,
)
