"""Homework: releases made from a master notebook, and a grader that trusts nothing a student hands
in.

In the *box* (`box.py`, `worker.py`) the student's notebook runs, without a network and within
limits. The *grader* (`score.py`) sends inputs into the box, gets back plain numbers and compares
them itself, so nothing that runs beside the student's code decides a point, as it would in
nbgrader's autograder. The *report* (`report.py`) shows what students wrote as text only. See
docs/teaching.md.

The way of a submission, step by step:

    collect.py     find it in the folder and read it
    roster.py      the list of students, and the platform's table of points
    hand_ins.py    whose it is, whether it counts, how late it is
    repair.py      put the course's cells back, find the written answers (pictures.py)
    session.py     run the cells and call the functions, in the box
    score.py       test the functions, write the record
    marks.py       what a person has entered for written answers
    points.py      the points of each question, and what being late takes
    report.py      tables and pages; overview.py, gradebook.py

`run.py` goes through a folder, `command.py` is the command line, `release.py` makes what students
get from a master (`assignment.py`, `task.py`; `guesses.py` is what a test must not give points
for). What a box may not ask of Linux stands in `syscalls.py`, what it holds counts `memory.py`.
`wire.py` has the messages between grader and box, `tables.py` reads and writes tables.
"""
