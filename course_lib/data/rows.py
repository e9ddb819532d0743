"""Go through the rows of a source, with the course's column names.

    rows = Rows(opened, "reviews.csv", ColumnMap({"text": "review", "label": "stars"}))
    next(iter(rows))    ("reviews.csv, line 2", {"text": "a fine film", "label": "5"})

The location ("line 2") is for messages. Rows without a label are skipped and counted. Here a label
is still the text in the file; labels.py turns it into the number of a class.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from course_lib.data import folders, formats
from course_lib.data.columns import (
    ANSWERS,
    ColumnMap,
    Located,
    Record,
    Row,
    has_label,
    map_row,
    unknown_columns,
)
from course_lib.data.sources import AnyDataset, Opened
from course_lib.errors import CourseError, CourseWarning

SEARCHED = 100  # number of rows of a large dataset in which we look for the first label
# How a user names the columns, for messages.
EXAMPLE = (
    '--columns text=review,label=stars (in Python: columns={"text": "review", "label": "stars"})'
)


class Rows:
    """Iterates over a source: yields (location, row) with the course's column names.

    Rows without a label and broken lines are skipped; `warn` tells the user how many.

    Args:
        opened: files, or a dataset of the hub.
        source: the source's name, for messages.
        user_map: what the user says about the columns; None if nothing.
        labelled: whether rows need a label. Rows to predict have none.
    """

    def __init__(
        self, opened: Opened, source: str, user_map: ColumnMap | None, labelled: bool = True
    ) -> None:
        self.opened = opened
        self.source = source
        self.user_map = user_map
        self.labelled = labelled
        self.column_map = ColumnMap()  # which column is which; the first record will tell
        self.count = self.broken = self.without_label = 0

    def __iter__(self) -> Iterator[tuple[str, Row]]:
        self.count = self.broken = self.without_label = 0
        is_first = True
        for location, record in self._records():
            self.count += 1
            if record is None:
                self.broken += 1
                continue
            try:
                if is_first:
                    self.column_map = self._find_column_map(record)
                    is_first = False
                row = self._row(record)
            except CourseError as error:
                raise CourseError(f"{location}: {error}") from None
            if row is None:
                self.without_label += 1
            else:
                yield location, row

    def first(self, split: str) -> Row:
        """The first row with a label. In a dataset we look only at the first `SEARCHED` rows."""
        searched = self
        if not isinstance(self.opened, folders.SplitFiles):  # it may be large
            searched = Rows(self.opened.take(SEARCHED), self.source, self.user_map, self.labelled)
        for _, row in searched:  # only the first row is read
            self.column_map = searched.column_map
            return row
        if searched.count == 0:
            raise CourseError(f"{self.source} has no rows in its {split} split.")
        raise CourseError(
            f"{self.source} has no rows with labels in its {split} split; use another, such as"
            " validation."
        )

    def warn(self) -> None:
        """Warn of rows that were skipped."""
        left_out = {
            "rows have no label": self.without_label,
            "lines are broken, as published": self.broken,
        }
        for reason, count in left_out.items():
            if count:
                warnings.warn(
                    f"{self.source}: {count:,} of {self.count:,} {reason}, and are left out.",
                    CourseWarning,
                    stacklevel=3,
                )

    def _records(self) -> Iterator[Located]:
        if isinstance(self.opened, folders.SplitFiles):
            return self.opened.records(self.user_map)
        return (
            (f"{self.source}, {location}", record) for location, record in _records(self.opened)
        )

    def _find_column_map(self, record: Record) -> ColumnMap:
        """Find out which column is which: the user says it, or a known format has these columns."""
        user_map = self.user_map
        if user_map is not None and user_map.columns:
            has_text = "text" in user_map.columns or "tokens" in user_map.columns
            has_answer = not self.labelled or any(name in user_map.columns for name in ANSWERS)
            if not has_text or not has_answer:
                raise CourseError(
                    f"say where both the text and its label (or target) stand, e.g. {EXAMPLE}."
                )
            return user_map
        record = _inside(record)
        known = formats.of_columns(record, self.labelled)
        unlabelled = formats.of_columns(record, labelled=False)
        if known is None and unlabelled is not None:
            raise CourseError(
                f"there are no labels; it has the columns {', '.join(record)} of {unlabelled.name}."
            )
        if known is None:
            raise CourseError(unknown_columns(list(record), self._first_cells(), True))
        if user_map is None:
            return known
        is_score = known.is_score if user_map.is_score is None else user_map.is_score
        return replace(
            known,
            no_label=user_map.no_label or known.no_label,
            classes=user_map.classes,
            is_score=is_score,
        )

    def _first_cells(self) -> list[list[Any]]:
        """The cells of the first rows, for a message."""
        rows: list[list[Any]] = []
        with suppress(CourseError):  # a broken line has a message of its own when it is read
            for _, record in islice(self._records(), SEARCHED):
                rows.append(list(_inside(record or {}).values()))
        return rows

    def _row(self, record: Record) -> Row | None:
        """The record with the course's column names; None if it has no label."""
        record = _inside(record)
        if isinstance(self.column_map, formats.Format):
            record = self.column_map.prepare(record)
        column_map = self.column_map
        if not self.labelled:
            columns = column_map.columns.items()
            without_answers = {ours: theirs for ours, theirs in columns if ours not in ANSWERS}
            column_map = replace(column_map, columns=without_answers)
        names = column_map.names(record)
        if not has_label(record, names, self.column_map.no_label):
            return None
        return map_row(record, names, self.column_map.is_score)


def _inside(record: Record) -> Record:
    """The record itself; for translations of the hub, the record inside its only column."""
    inside = record.get("translation")
    return inside if isinstance(inside, Mapping) else record


def _records(rows: AnyDataset) -> Iterator[tuple[str, Record]]:
    """The rows of a dataset, with the names of classes in place of their numbers."""
    names: dict[str, list[str | None]] = {}
    for column, kind in (rows.features or {}).items():
        kind = getattr(kind, "feature", kind)  # the type of a list's items
        if hasattr(kind, "names"):
            # The class -1 means that the label is withheld. As an index it is the last entry: None.
            names[column] = [*kind.names, None]
    for record in rows:
        words: dict[str, Any] = {}
        for column, classes in names.items():
            value = record[column]
            if isinstance(value, list):
                words[column] = [classes[i] for i in value]
            elif value is not None:
                words[column] = classes[value]
        first = str(next(iter(record.values()), ""))[:40]
        yield f"row {record.get('id') or record.get('idx') or repr(first)}", record | words
