"""Homework: releases made from a master notebook, and a grader that trusts nothing a student hands in.

Three places, three degrees of trust. In the *box* (`box.py`, `inside.py`) the student's notebook runs, without a
network and within limits. The *grader* (`session.py`, `score.py`) sits outside: it sends inputs that it has chosen
into the box, gets back plain numbers, and compares them itself, so nothing that runs beside the student's code decides
a point. The *report* (`report.py`) shows what students wrote as text only.

The masters carry nbgrader's cell metadata and markers, so they open in nbgrader too. Its autograder is not used: it
runs the tests, hidden ones included, in the student's own process. See docs/teaching.md.
"""
