"""Parameter-efficient fine-tuning: freeze a model and train only a few weights.

    peft.lora(model, "blocks.*.attn.[qv]", rank=8)      low-rank updates of matrices
    peft.dora(model, "blocks.*.attn.[qv]", rank=8)      LoRA, and the length of each row
    peft.adapters(model, width=64)                      small networks inside the blocks
    peft.prefix(model, length=10)                       keys and values before the text
    peft.prompt(model, length=20)                       token vectors before the text
    peft.bitfit(model)                                  only the biases
    peft.lora(peft.quantise_model(model))               QLoRA: LoRA on 4-bit matrices

Each returns the model, ready for training. `finetune(body, task, tokenizer, peft=peft.lora)` calls
one of them itself. A new method is a new file. If the library `peft` has the method too, its layout
is an entry in `folders.LAYOUTS`.

Its files:

    lora.py             LoRA and DoRA; `merge` adds the updates to the matrices
    adapters.py         adapters
    prefix.py           prefix tuning
    prompt.py           prompt tuning; front.py has what it shares with prefix tuning
    bitfit.py           BitFit
    quantise.py         QLoRA's frozen base; nf4.py is its 4-bit format
    inject.py           finds Linears by a pattern and replaces them
    weights.py          saves and loads only the trained weights
    count.py            counts the parameters and the memory of a training
    folders.py          reads and writes folders of the library `peft`
    layout.py           what folders.py must know of a method: lora_layout.py, front_layout.py
"""

from course_lib.peft.adapters import adapters
from course_lib.peft.bitfit import bitfit
from course_lib.peft.count import count
from course_lib.peft.folders import load_pretrained, save_pretrained
from course_lib.peft.inject import inject, put
from course_lib.peft.lora import LoRALinear, dora, lora, merge, unmerge
from course_lib.peft.prefix import prefix
from course_lib.peft.prompt import prompt
from course_lib.peft.quantise import quantise_model
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
    "quantise_model",
    "save",
    "save_pretrained",
    "unmerge",
]
