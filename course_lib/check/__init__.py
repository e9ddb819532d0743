"""The students' checks: `check.softmax_attention(fn)` prints what is right or names the likely mistake.

Each returns a `Verdict`, true where the answer is right.
"""

from course_lib.check.attention import causal_mask, masked_attention, softmax_attention
from course_lib.check.bart import infill, permute_sentences, rouge_n
from course_lib.check.base import Verdict
from course_lib.check.bert import mask_tokens, mlm_loss, nsp_pairs
from course_lib.check.choosing import amplification, answer_flops, preference_loss, training_bill
from course_lib.check.distilbert import cosine_loss, distil_loss, kept_layers, soft_loss
from course_lib.check.electra import replace_tokens, rtd_loss, sample_words, steps_for
from course_lib.check.elmo import bilm_labels, char_features, elmo_mix, nearest_use, turn_rows
from course_lib.check.embeddings import analogy, context_pairs, glove_loss, negative_loss, noise_distribution
from course_lib.check.finetuning import cls_logits, freeze, pair_batch
from course_lib.check.gpt import gelu, next_token_loss, perplexity
from course_lib.check.gpt2 import cached_step, continuation_score, gpt2_parameters, top_p
from course_lib.check.gpt3 import choice_scores, few_shot_prompt, gpt_parameters, induction, power_law
from course_lib.check.heads import merge_heads, multi_head, split_heads
from course_lib.check.inputs import bert_input, choice_inputs, entailment_input, similarity_inputs
from course_lib.check.inside import best_offset, by_words, control_labels, finds_governor, last_four
from course_lib.check.peft import adapter_forward, lora_forward, lora_merge, lora_start, nf4_block
from course_lib.check.pieces import best_split, bits_per_byte, wordpiece_encode
from course_lib.check.positions import alibi_bias, relative_index, rotary_attention, sinusoidal
from course_lib.check.roberta import disentangled_scores, encoder_weights, mask_words, pack_sentences
from course_lib.check.sampling import sample_top_k, temperature, top_k
from course_lib.check.sbert import bm25_weight, fuse_ranks, in_batch_loss, mean_pool, triplet_loss
from course_lib.check.start import accuracy, label_counts, vocabulary_size
from course_lib.check.t5 import corrupt_spans, mixing_rates, prefix_mask, rms_norm
from course_lib.check.tokenization import best_pair, bpe_encode, merge_pair
from course_lib.check.transfer import last_state, layer_rates, start_from, weight_change
from course_lib.check.transformer import layer_norm, residual_branch
from course_lib.check.translation import beam_step, decoder_input, smoothed_loss
from course_lib.check.words_and_spans import align_labels, best_span, span_probabilities

__all__ = [
    "Verdict",
    "accuracy",
    "adapter_forward",
    "alibi_bias",
    "align_labels",
    "amplification",
    "analogy",
    "answer_flops",
    "beam_step",
    "bert_input",
    "best_offset",
    "best_pair",
    "best_span",
    "best_split",
    "bilm_labels",
    "bits_per_byte",
    "bm25_weight",
    "bpe_encode",
    "by_words",
    "cached_step",
    "causal_mask",
    "char_features",
    "choice_inputs",
    "choice_scores",
    "cls_logits",
    "context_pairs",
    "continuation_score",
    "control_labels",
    "corrupt_spans",
    "cosine_loss",
    "decoder_input",
    "disentangled_scores",
    "distil_loss",
    "elmo_mix",
    "encoder_weights",
    "entailment_input",
    "few_shot_prompt",
    "finds_governor",
    "freeze",
    "fuse_ranks",
    "gelu",
    "glove_loss",
    "gpt2_parameters",
    "gpt_parameters",
    "in_batch_loss",
    "induction",
    "infill",
    "kept_layers",
    "label_counts",
    "last_four",
    "last_state",
    "layer_norm",
    "layer_rates",
    "lora_forward",
    "lora_merge",
    "lora_start",
    "mask_tokens",
    "mask_words",
    "masked_attention",
    "mean_pool",
    "merge_heads",
    "merge_pair",
    "mixing_rates",
    "mlm_loss",
    "multi_head",
    "nearest_use",
    "negative_loss",
    "next_token_loss",
    "nf4_block",
    "noise_distribution",
    "nsp_pairs",
    "pack_sentences",
    "pair_batch",
    "permute_sentences",
    "perplexity",
    "power_law",
    "preference_loss",
    "prefix_mask",
    "relative_index",
    "replace_tokens",
    "residual_branch",
    "rms_norm",
    "rotary_attention",
    "rouge_n",
    "rtd_loss",
    "sample_top_k",
    "sample_words",
    "similarity_inputs",
    "sinusoidal",
    "smoothed_loss",
    "soft_loss",
    "softmax_attention",
    "span_probabilities",
    "split_heads",
    "start_from",
    "steps_for",
    "temperature",
    "top_k",
    "top_p",
    "training_bill",
    "triplet_loss",
    "turn_rows",
    "vocabulary_size",
    "weight_change",
    "wordpiece_encode",
]
