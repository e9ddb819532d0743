"""What must not change: values of the library, group by group, beside golden.json.

    python tests/golden/collect.py            # says what differs
    python tests/golden/collect.py --write    # makes golden.json anew (only where a change is meant), or some groups of it

A group is a function () -> {name: value}; a value is a text, a list of whole numbers, or a list of floats, which may
differ by 3e-5 (another processor adds in another order). Batches are hashed tensor by tensor under the names of `KEYS`, so a renamed key changes one line there.
"""

# ruff: noqa: E501, E402
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch
from torch import Tensor

GOLDEN = Path(__file__).with_name("golden.json")
# A batch's key -> its name in the hashes, which never changes; the others are named alike.
KEYS = {"ids": "input_ids", "segments": "token_type_ids", "next": "next_label"}
SENTENCES = (
    "Anna takes the key to the kitchen.",
    "The old mill by the river was sold to a baker, and nobody knew why.",
)
SAMPLES = 32  # values stored of each output
Values = dict[str, Any]


def sha(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:20]


def sha_json(value: Any) -> str:
    return sha(json.dumps(value, sort_keys=True, default=list, ensure_ascii=False))


def sha_tensor(value: Tensor) -> str:
    data = value.detach().cpu().contiguous()
    return sha(f"{data.dtype} {list(data.shape)}\0".encode() + data.flatten().view(torch.uint8).numpy().tobytes())


def sha_batch(batch: Any) -> str:
    """Of a batch's tensors, sorted by their lasting names."""
    named = {KEYS.get(key, key): sha_tensor(torch.as_tensor(value)) for key, value in dict(batch).items()}
    return sha_json(named) + " " + " ".join(sorted(named))


def batches(source: Any, steps: Iterable[int] = range(3)) -> list[str]:
    return [sha_batch(source[step]) for step in steps]


def sampled(value: Tensor) -> list[float]:
    flat = value.detach().float().flatten()
    return [round(float(flat[i]), 7) for i in torch.linspace(0, len(flat) - 1, SAMPLES).long().tolist()]


@cache
def town() -> Any:
    from classroom.town import World

    return World(0)


@cache
def shipped(name: str) -> Any:
    from course_lib.pretrained import checkpoints as zoo

    return zoo.load(name)


@cache
def texts(corpus: str) -> list[str]:
    """Documents of the world, or docstrings of two small packages."""
    if corpus == "world":
        return [row["text"] for row in town().documents(200)]
    return list(json.loads((Path(__file__).parent / "docs.json").read_text("utf-8")))


def checkpoints() -> Values:
    """Outputs of every shipped model on two sentences, padded together; hashes of its weights and files."""
    from course_lib.pretrained import checkpoints as zoo

    out: Values = {"names": zoo.names(), "manifest.json": sha((zoo.FOLDER / "manifest.json").read_bytes())}
    for name in zoo.names():
        model, tokenizer, _ = shipped(name)
        for file in sorted((zoo.FOLDER / name).iterdir()):
            out[f"{name}/{file.name}"] = sha(file.read_bytes())
        state = {"vectors": model.matrix} if tokenizer is None else model.state_dict()
        hashes = {key: sha_tensor(state[key]) for key in sorted(state)}
        out[f"{name}/state names"] = sha_json(list(hashes))
        out[f"{name}/state bytes"] = sha_json(list(hashes.values()))
        out[f"{name}/state bytes, whatever the names"] = sha_json(sorted(hashes.values()))
        with torch.no_grad():
            out[f"{name}/outputs"] = sampled(output(model, tokenizer))
    return out


def output(model: Any, tokenizer: Any) -> Tensor:
    """What a shipped model gives for the two sentences, at their real tokens."""
    from course_lib.families import elmo
    from course_lib.objectives.collate import pad

    if tokenizer is None:
        return torch.stack([model[word] for word in ("the", "key", "kitchen")])
    if isinstance(model, elmo.BiLM):
        batch = elmo.characters([elmo.split(text) for text in SENTENCES], model.elmo.config.length)
        return model(**batch).transpose(1, 2)[batch["attention_mask"]]
    batch = pad(tokenizer.ids(list(SENTENCES)), tokenizer.vocab.pad or 0)
    real = batch["attention_mask"]
    if hasattr(model, "stack") and hasattr(model.stack, "decoder"):
        return model(batch["ids"], batch["ids"], attention_mask=real, decoder_attention_mask=real)[real]
    found = model(**batch)
    parts = found if isinstance(found, tuple) else (found,)
    return torch.cat([(part[real] if part.shape[:2] == real.shape else part).flatten() for part in parts])


def world() -> Values:
    """The town's first documents, and the first rows of all its tasks."""
    from classroom.town import SPLITS

    town_ = town()
    out: Values = {f"document {i}": sha_json(town_.document(i)) for i in range(20)}
    for split in SPLITS:
        out[f"documents/{split}"] = sha_json(town_.documents(20, split, seed=1))
        for name in town_.task_names():
            out[f"task/{name}/{split}"] = sha_json(town_.task(name, 5, split, seed=0))
    for name in town_.task_names():
        out[f"task/{name}/about"] = sha_json([town_.label_names(name), town_.describe(name)])
    for genre in town_.genres():
        out[f"genre/{genre}"] = sha_json(town_.documents(2, genre=genre))
    for level in (1, 2):
        out[f"primer/{level}"] = sha_json([town_.primer(i, level, made_up=0.3 * (i % 2)) for i in range(4)])
    for kind in ("name", "object", "place"):
        out[f"probe/{kind}"] = sha_json(town_.probe(5, kind=kind))
    for side in ("left", "right", "both"):
        out[f"evidence/{side}"] = sha_json(town_.evidence(5, side=side))
    return out | {"names": sha_json(town_.names()), "texts/docs": sha_json(texts("docs"))}


def help_texts() -> Values:
    """`python -m course_lib --help` and that of every command below, words and signs in their order."""
    import typer
    from typer.testing import CliRunner

    from course_lib.__main__ import add_commands, app

    def walk(command: Any, words: list[str]) -> None:
        said = CliRunner().invoke(app, [*words, "--help"], prog_name="python -m course_lib", env=wide)
        assert said.exit_code == 0, (words, said.output)
        lines = (" ".join(line.strip(" │╭╮╰╯─").split()) for line in said.output.splitlines())
        out[" ".join(["python -m course_lib", *words])] = "\n".join(line for line in lines if line)
        for name, below in getattr(command, "commands", {}).items():
            walk(below, [*words, name])

    out: Values = {}
    add_commands()
    wide = {"COLUMNS": "400", "TERM": "dumb", "NO_COLOR": "1"}
    walk(typer.main.get_command(app), [])
    return out


def claims() -> Values:
    """Every claim's settings and arms; the ledger and every stored record."""
    from classroom.records.ledger import DATA, read
    from experiments.engine.experiment import find
    from experiments.engine.lab import PLANS

    out: Values = {}
    for name, claim in read().items():
        experiment = find(name)
        arms = {p: [a.name for s in range(plan.seeds) for a in experiment.needs(plan, s)] for p, plan in PLANS.items()}
        out[f"{name}/settings"] = sha_json([experiment.config, claim.tried])
        out[f"{name}/arms"] = sorted({arm for names in arms.values() for arm in names})
    files = [*(DATA / "results").rglob("*"), *(DATA / "papers").glob("*"), DATA / "claims.yaml"]
    return out | {str(f.relative_to(DATA)): sha(f.read_bytes()) for f in sorted(files) if f.is_file()}


def sources(corpus: str) -> Values:
    """Batches of every source and every objective on one corpus, through the shipped tokenizers."""
    from course_lib import objectives
    from course_lib.data.batches import CorruptedBatches, DocumentBatches, WindowBatches
    from course_lib.data.token_store import encode_corpus
    from course_lib.objectives import collate

    bert, t5, bart, gpt = (shipped(f"{name}-mini").tokenizer for name in ("bert", "t5", "bart", "gpt"))
    store = {name: encode_corpus(texts(corpus), shipped(f"{name}-mini").tokenizer) for name in ("bert", "t5", "gpt")}
    size: dict[str, Any] = {"length": 64, "rows": 8, "seed": 3}
    masked, vocab, ends = partial(CorruptedBatches, store["bert"], bert), bert.vocab, objectives.sentence_ends(bart)

    def whole_words(ids: Any, real: Any, rng: Any) -> Any:
        return collate.masked(ids, real, rng, vocab=vocab, unit="word", words=bert.words(ids))

    many = [0, 1, 2, 1000]  # the last of them in a later epoch
    out = {
        "documents, gpt": batches(DocumentBatches(store["gpt"], gpt, **size), many),
        "documents, gpt, by tokens": batches(DocumentBatches(store["gpt"], gpt, length=48, tokens=512), many),
        "documents, bert": batches(DocumentBatches(store["bert"], bert, **size)),
        "windows": batches(WindowBatches(store["gpt"], **size), many),
        "masked": batches(masked(**size), many),
        "masked, by tokens": batches(masked(partial(collate.masked, vocab=vocab, rate=0.3), length=40, tokens=600)),
        "masked, words": batches(masked(whole_words, **size)),
    }

    def made(objective: Callable[..., Any], tokenizer: Any = bert, of: str = "bert", **how: Any) -> list[str]:
        run = partial(objective, vocab=tokenizer.vocab, **how)
        return batches(CorruptedBatches(store[of], tokenizer, run, **size))

    def worded(ids: Tensor, real: Tensor, rng: torch.Generator, **how: Any) -> Any:
        return collate.masked(ids, real, rng, words=bert.words(ids), **how)

    def joined(inner: Callable[..., Any], ids: Tensor, real: Tensor, rng: torch.Generator, vocab: Any) -> Any:
        return collate.joined(inner(ids, real, rng, vocab=vocab), vocab=vocab, most=96)

    corrupted = partial(collate.span_corrupted, sentinels=objectives.sentinels(t5))
    out |= {f"corrupted, masked {unit}": made(worded, unit=unit) for unit in ("token", "word", "span")}
    out |= {
        f"corrupted, denoised by {noise}": made(collate.denoised, bart, noises=[noise], ends=ends)
        for noise in objectives.NOISES
    }
    out |= {
        "corrupted, masked, electra": made(collate.masked, parts=(1.0, 0.0, 0.0)),
        "corrupted, span of tokens": made(collate.masked, unit="span"),
        "corrupted, denoised": made(collate.denoised, bart, ends=ends),
        "corrupted, denoised, rate": made(collate.denoised, bart, ends=ends, rate=0.5),
        "corrupted, spans": made(corrupted, t5, "t5"),
        "corrupted, long spans": made(corrupted, t5, "t5", rate=0.5, mean=5.0),
        "corrupted, prefix": made(collate.prefixed, t5, "t5"),
        "corrupted, joined spans": made(partial(joined, corrupted), t5, "t5"),
        "corrupted, joined prefix": made(partial(joined, collate.prefixed), t5, "t5"),
    }
    documents = [text.replace("! ", ". ").split(". ") for text in texts(corpus)[:120]]
    coded = [bert.ids(document, special=False) for document in documents]
    for name in ("segment-pair", "sentence-pair", "full-sentences", "doc-sentences"):
        rows = objectives.input_rows(coded, objectives.seeded_generator(5), vocab=vocab, format=name, length=64)
        out[f"rows {name}"] = sha_json([[row.ids, row.segments, row.next] for row in rows])
    return out


def inputs() -> Values:
    """Fine-tuning: frames of all kinds of tasks, mixtures, pairs and searches for sentence encoders."""
    from course_lib.data import text_to_text
    from course_lib.data.inputs import Frame, SourceTarget, TaskBatches, in_order
    from course_lib.families.sentence import TextBatches

    kinds = {"sentiment": "single", "similarity": "pair", "nli": "pair", "pos": "tagging", "continuation": "choice",
             "questions": "span"}  # fmt: skip
    sizes = [30, 20, 1000]
    mixed = {"proportional": text_to_text.mixing_rates(sizes, limit=200), "equal": text_to_text.mixing_rates([1, 1, 1]),
             "temperature": text_to_text.mixing_rates(sizes, 2.0, limit=200)}  # fmt: skip
    out: Values = {}
    for model in ("bert-mini", "gpt-mini", "electra-mini"):
        loaded = shipped(model)
        for task, kind in kinds.items():
            classes = len(town().label_names(task)) or None
            frame = Frame(loaded.tokenizer, loaded.model.stack.config, kind, classes=classes, max_length=48)  # type: ignore[arg-type]
            rows = frame.rows(town().task(task, 24))
            out[f"{model}/{task}"] = batches(TaskBatches(frame, rows, 8, seed=1), [0, 1, 4])
            ordered = [(numbers, sha_batch(batch)) for numbers, batch in in_order(frame, rows, 8)]
            out[f"{model}/{task}/in order"] = sha_json(ordered)
    for model in ("t5-mini", "bart-mini"):
        loaded = shipped(model)
        frame = SourceTarget(loaded.tokenizer, loaded.model.stack.decoder.config, max_length=64)
        worded = {name: town().task(name, 24) for name in ("translation", "summaries")}
        worded["sst2"] = list(text_to_text.rows(town().task("sentiment", 24), "sst2"))
        asked = {name: [{**row, "text": f"do: {row['text']}"} for row in rows] for name, rows in worded.items()}
        tasks = {name: frame.rows(rows) for name, rows in asked.items()}
        for name, rows in tasks.items():
            out[f"{model}/{name}"] = batches(TaskBatches(frame, rows, 8, seed=1))
        for how, rates in mixed.items():
            out[f"{model}/mixed {how}"] = batches(text_to_text.MixedTasks(frame, tasks, rates, batch=8), [0, 1, 9])
    words = shipped("sbert-mini").tokenizer
    for name, best in (("nli", None), ("similarity", 5.0), ("retrieval", None)):
        made = TextBatches(town().task(name, 24), words, batch=8, seed=1, max_length=32, best=best)
        out[f"sentences/{name}"] = batches(made, [0, 1, 4])
    return out


def recipes() -> Values:
    """What the shipped checkpoints' recipes read: primer, causal start, documents; small rows, their own objectives."""
    from course_lib.families import elmo, preset
    from experiments.engine import arms
    from experiments.recipes import JOBS, RECIPES
    from experiments.recipes.documents import Recipe
    from experiments.recipes.sentences import SentenceRecipe
    from experiments.recipes.words import ElmoRecipe, StaticRecipe

    out: Values = {name: sha_json(vars(recipe)) for name, recipe in RECIPES.items()}
    with tempfile.TemporaryDirectory() as place:
        for name, recipe in RECIPES.items():
            folder, steps, source = Path(place) / name, range(3), None
            folder.mkdir()
            run = JOBS[type(recipe)]
            if isinstance(recipe, Recipe):
                known = "gpt-mini" if name == "gpt-small" else name
                shutil.copy(ROOT / "data" / "checkpoints" / known / "tokenizer.json", folder)
                primer, first = ((4, 4), 2) if sum(recipe.primer) else ((0, 0), 0)
                stages: Any = {stage: min(first, getattr(recipe, stage)) for stage in ("causal", "alone")}
                small = replace(recipe, rows=4, pool=4, primer=primer, **stages)
                source, steps = run(name, small, folder).batches(), [0, 1, 2, 5, 8, 9, 13]  # type: ignore[attr-defined]
            elif isinstance(recipe, SentenceRecipe):
                source = run(name, replace(recipe, pairs=64, inference=2, rows=8), folder).batches()  # type: ignore[attr-defined]
            elif isinstance(recipe, ElmoRecipe):
                shipped(name).tokenizer.save(folder / "vocabulary.txt")
                source = run(name, replace(recipe, rows=4, pool=4), folder).batches()  # type: ignore[attr-defined]
            elif isinstance(recipe, StaticRecipe):
                learner = run(name, replace(recipe, documents=150, epochs=2), folder).learner()  # type: ignore[attr-defined]
                text = learner.text
                out[f"{name}/text"] = [sha_json(text.words), *map(sha_tensor, (text.counts, text.ids, text.rows))]
                if recipe.kind == "skip-gram":
                    read = [part for _, part in zip(range(3), learner.batches(), strict=False)]
                    out[f"{name}/batches"] = [sha_tensor(x) for _, *both in read for x in both]
                    out[f"{name}/drawn"] = sha_tensor(learner.draw(8))
                out[f"{name}/losses"] = [round(epoch.loss, 7) for epoch in learner.train()]
            if source is not None:
                out[f"{name}/batches"] = batches(source, steps)
    known = shipped("bert-mini").tokenizer
    size: dict[str, Any] = {"rows": 4, "length": 64, "seed": 1}
    config = {"mlm_nsp": preset("bert-mini"), "mlm": preset("bert-mini"), "clm": preset("gpt-mini")}
    for objective, model in config.items():
        parts = (0.8, 0.1, 0.1) if objective == "mlm_nsp" else (1.0, 0.0, 0.0)
        arm = arms.Arm(objective, model, **size, pairs=0.5, parts=parts)  # type: ignore[arg-type]
        out[f"arm {objective}"] = [arm.name, *batches(arms.ArmBatches(arm, known, pool=4))]
    vocabulary = shipped("elmo-mini").tokenizer
    arm = arms.Arm("bilm", elmo.elmo_mini(len(vocabulary)), **size)
    return out | {"arm bilm": [arm.name, *batches(arms.batches_of(arm, vocabulary))], "documents": arms.fingerprint(0)}


def experiments() -> Values:
    """Batches that experiments make for themselves."""
    from course_lib import objectives
    from experiments.engine.lab import windows
    from experiments.lessons.decoders import choosing, gpt3
    from experiments.lessons.encoders import roberta
    from experiments.lessons.seq2seq import bart
    from experiments.town import tasks as world_tasks

    stream = torch.arange(5000) % 97
    gpt, bert = shipped("gpt-mini").tokenizer, shipped("bert-mini").tokenizer
    out = {
        "gpt3, sums": batches(gpt3.sums(1)),
        "gpt3, letters": batches(windows(stream, 64, 16, 1, ahead=0)),
        "positions, windows": batches(windows(stream, 32, 4, 1, 32)),
        "world tasks, targets": batches(world_tasks._Targets(town().task("summaries", 24), gpt, 8, 1, 160)),
        "bart, masked": batches(bart.noised_stories((), 1)),
    }
    for kind in (choosing.ENCODER, choosing.DECODER, choosing.BOTH):
        out[f"choosing, {kind}"] = batches(choosing.task_batches(kind, 1))
    for noise in objectives.NOISES:
        out[f"bart, {noise}"] = batches(bart.noised_stories((noise,), 1))
    documents = [bert.ids(row["sentences"], special=False) for row in town().documents(60)]
    for name, change in (("full-sentences", {}), ("segment-pair", {"unit": "word"}), ("sentence-pair", {"copies": 2})):
        rng = objectives.seeded_generator(0)
        rows = objectives.input_rows(documents, rng, vocab=bert.vocab, format=name, length=64)
        made = roberta.MaskedRows(rows, bert, roberta.Change(format=name, **change), 1)
        out[f"roberta, {name}"] = batches(made, [0, 1, 40])
    return out


def training() -> Values:
    """Three steps of a tiny model a family: loss and norm of the gradient."""
    from course_lib import objectives
    from course_lib.data.batches import CorruptedBatches, DocumentBatches
    from course_lib.data.token_store import encode_corpus
    from course_lib.families import bart, bert, electra, elmo, gpt, t5
    from course_lib.families.electra import Electra
    from course_lib.model import heads
    from course_lib.model.transformer import Transformer
    from course_lib.objectives import collate, losses
    from course_lib.training import optim
    from course_lib.training.loop import train

    size: dict[str, Any] = {"width": 32, "layers": 2, "heads": 2, "dropout": 0.0}
    gpts, berts, t5s = (shipped(f"{name}-mini").tokenizer for name in ("gpt", "bert", "t5"))
    how: dict[str, Any] = {"length": 64, "rows": 8, "seed": 0}
    coded = [encode_corpus(texts("world"), tokenizer) for tokenizer in (gpts, berts, t5s)]
    vocab = {"vocab": berts.vocab.size, "length": 64}
    filled = partial(collate.masked, vocab=berts.vocab, parts=(1.0, 0.0, 0.0))
    noised = partial(collate.denoised, vocab=berts.vocab, ends=objectives.sentence_ends(berts))
    spans = partial(collate.span_corrupted, vocab=t5s.vocab, sentinels=objectives.sentinels(t5s))
    known = shipped("elmo-mini").tokenizer
    tiny = replace(elmo.elmo_mini(len(known)), width=16, hidden=24)
    documents = [elmo.split(text) for text in texts("world")]
    dropping = {**size, "dropout": 0.1}
    runs: dict[str, tuple[Callable[[], Any], Any, Any]] = {
        "gpt": (lambda: heads.LM(Transformer(gpt.gpt(gpts.vocab.size, length=64, **size))), DocumentBatches(coded[0], gpts, **how), losses.clm),
        "gpt, dropout": (lambda: heads.LM(Transformer(gpt.gpt(gpts.vocab.size, length=64, **dropping))), DocumentBatches(coded[0], gpts, **how), losses.clm),
        "bert": (lambda: heads.MLM(Transformer(bert.bert(**vocab, **size))), CorruptedBatches(coded[1], berts, **how), losses.mlm),
        "electra": (lambda: Electra(*electra.pair(electra.electra(**vocab, **size))), CorruptedBatches(coded[1], berts, filled, **how), losses.electra),
        "bart": (lambda: bart.bart_lm(bart.bart(**vocab, **size), berts.vocab.sep), CorruptedBatches(coded[1], berts, noised, **how), losses.seq2seq),
        "t5": (lambda: t5.t5_lm(t5.t5(t5s.vocab.size, hidden=64, **size), t5s.vocab.pad), CorruptedBatches(coded[2], t5s, spans, **how), losses.seq2seq),
        "elmo": (lambda: elmo.model(tiny), elmo.BiLMBatches(lambda i: documents[i], known, tiny, rows=4, length=40, pool=4), elmo.loss),
    }  # fmt: skip
    out: Values = {}
    for name, (make, source, loss) in runs.items():
        torch.manual_seed(0)
        model = make()
        out[f"{name}/start"] = sampled(torch.cat([p.flatten() for p in model.parameters()]))
        steps = list(train(model, source, loss, optim.adamw(model, 1e-3), optim.linear(10, 2), steps=3))
        out[f"{name}/losses"] = [round(step.loss, 6) for step in steps]
        out[f"{name}/gradients"] = [round(step.grad_norm, 6) for step in steps]
        out[f"{name}/tokens, lr"] = [step.tokens for step in steps] + [round(1e9 * step.lr) for step in steps]
    return out


def generation() -> Values:
    """Tokens that the shipped models say to a prompt: greedily, by beams, by seeded draws."""
    from course_lib import objectives
    from course_lib.generation import generate

    ways: dict[str, dict[str, Any]] = {
        "greedy": {}, "beams": {"num_beams": 3, "length_penalty": 0.8}, "no cache": {"cache": False},
        "drawn": {"do_sample": True, "top_p": 0.9, "temperature": 0.8},
    }  # fmt: skip
    out: Values = {}
    for name in ("gpt-mini", "bart-mini", "t5-mini"):
        model, tokenizer, _ = shipped(name)
        vocab, alone = tokenizer.vocab, name == "gpt-mini"
        prompt = tokenizer.ids([SENTENCES[0]], special=not alone)[0]
        if name == "t5-mini":
            prompt[4] = objectives.sentinels(tokenizer)[0]
        ids, ends = torch.tensor([[vocab.bos, *prompt] if alone else prompt]), vocab.eos if alone else vocab.sep
        for way, options in ways.items():
            more = {"eos": ends, "pad": vocab.pad, "generator": torch.Generator().manual_seed(0)}
            said = generate(model, ids, max_new_tokens=16, **more, **options)[0].tolist()
            out |= {f"{name}/{way}": said, f"{name}/{way}, text": tokenizer.decode(said)}
    return out


GROUPS: dict[str, Callable[[], Values]] = {
    "checkpoints": checkpoints,
    "world": world,
    "help": help_texts,
    "claims": claims,
    "sources, world": partial(sources, "world"),
    "sources, docs": partial(sources, "docs"),
    "inputs": inputs,
    "recipes": recipes,
    "experiments": experiments,
    "training": training,
    "generation": generation,
}


def compute(name: str) -> Values:
    """A group's values as JSON has them."""
    torch.set_num_threads(1)
    return dict(json.loads(json.dumps(GROUPS[name]())))


def differences(expected: Values, found: Values) -> list[str]:
    """One line for every value that is not as it was; floats may differ by 3e-5."""
    lines = [f"gone: {name}" for name in expected if name not in found]
    lines += [f"new: {name} = {found[name]!r:.100}" for name in found if name not in expected]
    for name in sorted(expected.keys() & found.keys()):
        old, new = (value.split("\n") if isinstance(value, str) else value for value in (expected[name], found[name]))
        if len(old) != len(new):
            lines.append(f"{name}: {len(old)} -> {len(new)} parts")
        for a, b in zip(old, new, strict=False):
            floats = isinstance(a, float) and isinstance(b, float)
            if a != b and not (floats and abs(a - b) <= 3e-5 * max(1.0, abs(a))):
                lines.append(f"{name}: {a!r:.150} -> {b!r:.150}")
    return lines


if __name__ == "__main__":
    args = sys.argv[1:]
    kept = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    for group in [arg for arg in args if arg != "--write"] or GROUPS:
        values = compute(group)
        odd = differences(kept.get(group, {}), values)
        print(f"{group}: {len(values)} values, {len(odd)} differ", *odd[:20], sep="\n  ")
        kept[group] = values
    if "--write" in args:
        GOLDEN.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
