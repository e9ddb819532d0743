"""The commands of `python -m course_lib`, one file each.

    pretrain.py    pretrain, tokenize
    finetune.py    finetune, predict
    generate.py    generate
    zoo.py         zoo list, zoo check
    info.py        info
    fetch.py       fetch
    options.py     options that commands share; the fields of a config as options
    screen.py      the progress bar and tables

A command imports torch only when it runs, so `--help` is quick.
"""
