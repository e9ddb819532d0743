"""From batches to a trained model: the loop, and what uses it.

Its files:

    loop.py              the algorithm; read it first
    optim.py             optimizers and schedules
    feed.py              brings batches to the GPU
    device.py            the device, and float32 or bfloat16
    guard.py             stops a training before a loss of nan spoils the weights
    distributed.py       several processes, usually one for each GPU
    run_state.py         saves a run; a resumed one ends with the same bits
    run_folder.py        a run's folder: its state, its curve, its card

    settings.py          config fields that are also options of a command
    pretrain_config.py   the settings of a pretraining run
    sizes.py             the names and sizes of models to pretrain
    token_files.py       from text to token files
    pretraining.py       from token files to a model's folder
    distill.py           a student learns from a teacher

    finetune_config.py   the settings of a fine-tuning run
    task_data.py         encodes the rows of a task
    task_model.py        the model for a task: a copy of the body, and a new head
    finetune.py          trains this model and scores it
    fine_tuned.py        saves and loads the result, and predicts with it
    spans.py             finds the answer to a question in a passage
"""
