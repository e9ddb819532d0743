"""Parameter-efficient fine-tuning: train a few new weights in, beside or in front of a frozen
model.

    peft.lora(model, "blocks.*.attn.[qv]", rank=8)      beside Linears; merge() adds them in
    peft.adapters(model, width=64)                      inside blocks
    peft.prefix(model, length=10)                       keys and values in front, in every layer
    peft.prompt(model, length=20)                       token vectors in front
    peft.bitfit(model)                                  the biases alone
    peft.lora(peft.quantise(model))                     QLoRA

Each freezes the model, adds its weights and returns what to train: `finetune(body, task, tokenizer,
peft=peft.lora)`."""
# ruff: noqa: F401  the names are the package's

from course_lib.peft.folders import load, load_pretrained, save, save_pretrained
from course_lib.peft.front import prefix, prompt
from course_lib.peft.methods import (
    Adapter,
    adapters,
    bitfit,
    count,
    inject,
    lora,
    merge,
    quantise,
    unmerge,
)
