"""Parameter-efficient fine-tuning: train a few new weights in, beside or in front of a frozen model.

Every method takes a model (or a bare Stack), freezes it, adds its weights and returns what to train:

    peft.lora(model, "blocks.*.attn.[qv]", rank=8)      beside Linears; merge() adds them in
    peft.adapters(model, width=64)                      inside blocks
    peft.prefix(model, length=10)                       keys and values in front, in every layer
    peft.prompt(model, length=20)                       token vectors in front
    peft.bitfit(model)                                  the biases alone
    peft.lora(peft.quantise(model))                     QLoRA

`finetune(body, task, tokenizer, peft=peft.lora)` trains one with a head on a task; `count` says what it takes; `save`
and `load` keep the new weights alone; `save_pretrained` and `load_pretrained` speak the folders of the library `peft`.
"""

from course_lib.peft.adapters import adapters
from course_lib.peft.front import Prefixed, Prompted, prefix, prompt
from course_lib.peft.inject import Added, Count, bitfit, count, freeze, inject
from course_lib.peft.lora import lora, merge, quantise, unmerge
from course_lib.peft.public import load_pretrained, save_pretrained
from course_lib.peft.weights import load, save

__all__ = [
    "Added",
    "Count",
    "Prefixed",
    "Prompted",
    "adapters",
    "bitfit",
    "count",
    "freeze",
    "inject",
    "load",
    "load_pretrained",
    "lora",
    "merge",
    "prefix",
    "prompt",
    "quantise",
    "save",
    "save_pretrained",
    "unmerge",
]
