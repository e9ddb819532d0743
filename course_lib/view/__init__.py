"""Figures, widgets and tables of the lessons.

Figures are pure functions that return a matplotlib Figure; `show(figure, caption=..., alt=...)` puts one under the
cell. Widgets and tables return an `Html` that shows itself as the last expression of a cell. Matplotlib, IPython and
ipywidgets are imported by the functions that use them.
"""

from course_lib.view.arcs import head_arcs, head_player
from course_lib.view.attention_widget import attention
from course_lib.view.beam import Option, beam_picture, beam_tree
from course_lib.view.bill_calculator import bill_calculator
from course_lib.view.blueprints import block, stacks
from course_lib.view.calculator import calculator
from course_lib.view.charts import bars, curves, histogram, learning_curve, scaling, scatter
from course_lib.view.course_map import lesson_list, lesson_map
from course_lib.view.display import Html, show
from course_lib.view.drawings import bert_input, gelu, gpt1_inputs, tokens
from course_lib.view.finetuning import bert_heads, confusion, score_grid, span_bars
from course_lib.view.games import Blank, fill_in, quiz
from course_lib.view.html import boxes
from course_lib.view.live import explore, live
from course_lib.view.maps import attention_map, heads_grid, mask_picture
from course_lib.view.next_words import next_words
from course_lib.view.overview import timeline
from course_lib.view.parse import annotations
from course_lib.view.player import Frame, masking, player, samples, word_steps
from course_lib.view.playground_widget import playground
from course_lib.view.replaced import Filled, which_replaced
from course_lib.view.report_card import ReportEntry, report_card
from course_lib.view.rotation import rotation
from course_lib.view.search_widget import search_page
from course_lib.view.soft_targets import soft_targets
from course_lib.view.span_widget import span_reader
from course_lib.view.tables import Row, results_table, table
from course_lib.view.trees import search_tree
from course_lib.view.vectors import arrows, number_map, signed_map
from course_lib.view.word_map import word_map

__all__ = [
    "Blank",
    "Filled",
    "Frame",
    "Html",
    "Option",
    "ReportEntry",
    "Row",
    "annotations",
    "arrows",
    "attention",
    "attention_map",
    "bars",
    "beam_picture",
    "beam_tree",
    "bert_heads",
    "bert_input",
    "bill_calculator",
    "block",
    "boxes",
    "calculator",
    "confusion",
    "curves",
    "explore",
    "fill_in",
    "gelu",
    "gpt1_inputs",
    "head_arcs",
    "head_player",
    "heads_grid",
    "histogram",
    "learning_curve",
    "lesson_list",
    "lesson_map",
    "live",
    "mask_picture",
    "masking",
    "next_words",
    "number_map",
    "player",
    "playground",
    "quiz",
    "report_card",
    "results_table",
    "rotation",
    "samples",
    "scaling",
    "scatter",
    "score_grid",
    "search_page",
    "search_tree",
    "show",
    "signed_map",
    "soft_targets",
    "span_bars",
    "span_reader",
    "stacks",
    "table",
    "timeline",
    "tokens",
    "which_replaced",
    "word_map",
    "word_steps",
]
