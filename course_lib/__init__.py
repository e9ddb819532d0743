"""Pretrained language models, written to be read: one Transformer, and a configuration a model.

    model         attention, positions, masks, the Transformer and its heads; the file
                  `model/transformer.py` is the place to begin
    objectives    what a batch asks: corruptions and losses
    families      how BERT, GPT, T5 and the others differ from the Transformer
    data          from a name, a file or a folder to a batch
    zoo           models that exist: shipped checkpoints, public folders
    generation    filters, sampling, beam search
    peft          LoRA and other methods that train few weights
    analysis      probes, metrics, costs, retrieval
    training      the loop, pretraining, fine-tuning, distillation

Importing this package imports torch and nothing heavier. Data, plotting and transformers are
imported by the functions that use them."""

from course_lib.errors import CourseError as CourseError

__version__ = "0.1.0"
