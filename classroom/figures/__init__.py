"""Figures and tables of the lessons.

Figures are pure functions that return a matplotlib Figure; `show(figure, caption=..., alt=...)`
puts one under the cell. Tables return an `Html` that shows itself as the last expression of a cell.

    charts.py       curves, bars, arrows
    maps.py         matrices: attention weights, masks, confusions
    attention.py    who looks at whom, one query's way, heads split, a mask at work
    drawings.py     token boxes, BERT's inputs and heads, blocks and stacks
    decoders.py     next tokens: what a decoder reads, sees and predicts
    models.py       whole models, drawn from their configuration
    contexts.py     who sees whom, and what a model says at a gap
    readers.py      filters over letters, an LSTM, ELMo's two readers and its mix
    words.py        word vectors: as colours, pulled and pushed, in groups, as parallelograms
    sentences.py    sentence vectors: pooling, a batch as a matrix, a map; what a search finds
    spans.py        every answer from a first to a last token
    text_to_text.py  lesson 17: one model for many tasks, span corruption as boxes
    subwords.py     how tokenizers cut: coloured tokens, merges as a tree, a lattice of splits
    decoding.py     a language model that answers and writes: expectations, samplers, its cache
    translators.py  a translator: alignment, the whole model, its attentions, its residual stream
    first_steps.py  lesson 00: questions that a text asks, one network in four uses, few labels
    denoising.py    lesson 16: an encoder-decoder that writes a corrupted text again
    distilling.py   a teacher, its student and the three losses
    replacing.py    ELECTRA's two networks, a text shaded by suspicion
    choosing.py     lesson 21: a map of tasks and models, the steps to a chat model, DPO's loss
    flow.py         boxes and arrows: what leads to what
    induction.py    lesson 19: a head that looks one back, a head that looks for what came next
    trees.py        searches for the next words, beam search
    parse.py        arcs over a sentence
    positions.py    clocks, doors for positions, biases as maps, beyond the trained length
    peft.py         new weights in a frozen block, a product of thin matrices
    probes.py       a probe at each layer, lines over the layers
    recipes.py      lesson 12: masks over the epochs, shared layers, a score of three terms
    course_map.py   the lessons and what builds on what; ten years of models
    tables.py       tables of rows, papers' figures beside ours
    transfer.py     where weights come from, layers unfrozen, scores over labels
    live.py         a training watched as it runs
    display.py      puts a figure or HTML under a cell
    labels.py       labels moved until none covers another
    style.py        colours and type of every figure
"""
# ruff: noqa: F401  the names are the package's

from classroom.figures.attention import heads_layer, heads_split, looks, one_query, staircase
from classroom.figures.charts import (
    arrows,
    bars,
    curves,
)
from classroom.figures.choosing import chat_steps, decision_map, dpo_pair, evidence
from classroom.figures.contexts import gap_guesses, who_sees_whom
from classroom.figures.course_map import lesson_list, lesson_map, timeline
from classroom.figures.decoders import next_tokens
from classroom.figures.decoding import cache_steps, continuation, expectations, sampling
from classroom.figures.denoising import restoring
from classroom.figures.display import Html, show
from classroom.figures.distilling import three_losses
from classroom.figures.drawings import (
    bert_heads,
    bert_input,
    block,
    gpt1_inputs,
    stacks,
    tokens,
)
from classroom.figures.first_steps import (
    free_questions,
    next_words,
    one_network,
    over_labels,
    two_means,
)
from classroom.figures.flow import flow
from classroom.figures.induction import induction_circuit
from classroom.figures.live import explore, train_with_progress
from classroom.figures.maps import (
    attention_map,
    heads_grid,
    mask_picture,
    number_map,
    score_grid,
    signed_map,
)
from classroom.figures.models import Tower, model, tower
from classroom.figures.parse import annotations, head_arcs
from classroom.figures.peft import low_rank, new_weights
from classroom.figures.positions import (
    bias_maps,
    by_position,
    clocks,
    echoes,
    position_doors,
)
from classroom.figures.probes import layer_lines, probe_layers
from classroom.figures.readers import letter_filters, lstm_steps, two_readers
from classroom.figures.recipes import disentangled, masks_by_epoch, shared_layers
from classroom.figures.replacing import electra_networks, suspects
from classroom.figures.sentences import (
    batch_matrix,
    duel,
    pooling,
    ranking,
    sentence_map,
    two_encoders,
)
from classroom.figures.spans import span_table
from classroom.figures.subwords import coloured, cuts, lattice, merge_tree
from classroom.figures.tables import boxes, table
from classroom.figures.text_to_text import corrupted, one_model
from classroom.figures.transfer import label_curves, unfreezing, weight_origins
from classroom.figures.translators import (
    alignment,
    residual_stream,
    stream_parts,
    three_attentions,
    translator,
    translator_tensors,
)
from classroom.figures.trees import (
    Option,
    grow_tree,
    options,
    probability,
    search_tree,
    two_ways,
)
from classroom.figures.words import parallelogram, push_pull, vector_strips, word_matrix
