"""Homework: releases made from a master notebook, and a grader that trusts nothing a student hands
in.

In the *box* (`box.py`, `worker.py`) the student's notebook runs, without a network and within
limits. The *grader* (`score.py`) sends inputs into the box, gets back plain numbers and compares
them itself, so nothing that runs beside the student's code decides a point, as it would in
nbgrader's autograder. The *report* (`report.py`) shows what students wrote as text only. See
docs/teaching.md."""
