"""Recorded results of the claims, for lessons and slides; `experiments.engine` writes them.

records.record("gelu-converges")      # what data/results says: verdict, figures of every seed, configuration
records.summary("gelu-converges")     # the same in one sentence
records.beside("bert-glue", {...})    # chosen ones, as a lesson shows them
records.recorded("bert-glue", "...")  # one of them, with its interval
records.public_table(records.public_records())  # public tasks, as far as they are recorded
"""
# ruff: noqa: F401  the names are the package's

from classroom.records.ledger import Claim, claim, of_lesson
from classroom.records.public import compared, public_records, public_table
from classroom.records.record import Figure, Figures, Record, Verdict, record
from classroom.records.report import beside, recorded, summary
