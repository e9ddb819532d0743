"""The models: one Transformer, and a configuration for each published model.

Read `transformer.py` first.

    transformer.py      the trunk: token ids to hidden states
    config.py           what a model is, as data
    attention.py        queries, keys and values
    masks.py            who may attend to whom
    positions.py        the order of the tokens, in seven ways
    layers.py           the feed-forward network, the block, the embedding
    norms.py            LayerNorm and RMSNorm
    heads.py            layers on top of the trunk: language models, classifiers, taggers
    seq2seq.py          encoder-decoder models
    lstm.py             LSTMs
    cache.py            keys and values of earlier tokens
    initialization.py   mimetic initialisation
    kernels.py          fast paths, each equal to a plain formula
    recompute.py        activation checkpointing
    tied.py             tensors that have several names
    modes.py            training mode and evaluation mode
    checks.py           checks of what a model is given
"""
