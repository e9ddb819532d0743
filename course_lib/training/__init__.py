"""From batches to a trained model: the loop, and what uses it.

Its files:

    loop.py              the algorithm; read it first
    optim.py             optimizers and schedules
    feed.py              batches on their way to the device
    device.py            the device, and the precision
    guard.py             stops before an update that is not finite
    distributed.py       several processes
    run_state.py         saves a run; a resumed one ends with the same bits
    run_folder.py        a run's folder: its state, its curve, its card

    settings.py          config fields that are also options of a command
    pretrain_config.py   the settings of a pretraining run
    sizes.py             the names and sizes of models to pretrain
    token_files.py       from text to token files
    pretraining.py       from token files to a model's folder
    distill.py           a student learns from a teacher

    finetune_config.py   the settings of a fine-tuning run
    task_data.py         a task's rows as the model reads them
    task_model.py        a copy of the body, and the task's head
    finetune.py          one task, one model, one score
    fine_tuned.py        the result: saved, loaded, used for predictions
    spans.py             answers in a passage
"""
