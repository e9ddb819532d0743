"""The claims engine: every statement of the lectures, its experiment, its record.

    claims.record("gelu-converges")      # what data/results says: verdict, figures of every seed, configuration
    claims.summary("gelu-converges")     # the same in one sentence
    claims.table("bert-glue")            # the paper's figures beside ours, as a data frame
    claims.beside("bert-glue", {...})    # chosen ones, as a lesson shows them
    claims.recorded("bert-glue", "...")  # one of them, with its interval
    python -m course_lib claims list | run ID... | report

`ledger.py` reads the claims, `experiment.py` is what an experiment is (they are in course_lib/experiments), `arms.py`
and `lab.py` pretrain and fine-tune what they ask for, `run.py` runs them, `record.py` and `report.py` tell.
"""

from course_lib.claims.ledger import Claim, claim, of_lesson
from course_lib.claims.record import Figure, Figures, Record, Verdict, record
from course_lib.claims.report import beside, recorded, summary, table

__all__ = [
    "Claim",
    "Figure",
    "Figures",
    "Record",
    "Verdict",
    "beside",
    "claim",
    "of_lesson",
    "record",
    "recorded",
    "summary",
    "table",
]
