"""Parameter-efficient fine-tuning: train a few new weights and freeze the model.

    peft.lora(model, "blocks.*.attn.[qv]", rank=8)      beside Linears; merge() adds them in
    peft.dora(model, "blocks.*.attn.[qv]", rank=8)      the same, and each row's length
    peft.adapters(model, width=64)                      inside blocks
    peft.prefix(model, length=10)                       keys and values in front, in every layer
    peft.prompt(model, length=20)                       token vectors in front
    peft.bitfit(model)                                  the biases alone
    peft.lora(peft.quantise(model))                     QLoRA

Each freezes the model, adds its weights and returns what to train: `finetune(body, task, tokenizer,
peft=peft.lora)`. A new method is a file; where the library `peft` has it too, it has an entry in
`folders.LAYOUTS`.

Its files:

    lora.py             LoRA and DoRA
    adapters.py         adapters
    prefix.py           prefix tuning
    prompt.py           prompt tuning; front.py has what it shares with prefix tuning
    bitfit.py           BitFit
    quantise.py         a model whose Linears are kept in NF4; nf4.py is that format
    inject.py           finds Linears by a pattern and replaces them
    weights.py          the trained weights in one file
    count.py            parameters and bytes that a training needs
    folders.py          folders of the library `peft`, in and out
    layout.py           what a method tells folders.py: lora_layout.py, front_layout.py
"""

from course_lib.peft.adapters import adapters
from course_lib.peft.bitfit import bitfit
from course_lib.peft.count import count
from course_lib.peft.folders import load_pretrained, save_pretrained
from course_lib.peft.inject import inject, put
from course_lib.peft.lora import LoRALinear, dora, lora, merge, unmerge
from course_lib.peft.prefix import prefix
from course_lib.peft.prompt import prompt
from course_lib.peft.quantise import quantise
from course_lib.peft.weights import load, save

__all__ = [
    "LoRALinear",
    "adapters",
    "bitfit",
    "count",
    "dora",
    "inject",
    "load",
    "load_pretrained",
    "lora",
    "merge",
    "prefix",
    "prompt",
    "put",
    "quantise",
    "save",
    "save_pretrained",
    "unmerge",
]
