"""Scores of whole sentences, by models of every form, and what BLiMP makes of them."""

import json

import numpy as np
import pytest

from albert import run_blimp, run_pretraining
from albert.data import record_files
from albert.experiments import sentence_scores
from albert.export import hub_export
from albert.io import file_io
from albert.model import encoder, heads, pretraining_heads, sources
from albert.text import tokenization
from tests.support import builders, huggingface_samples

SENTENCES = ["the bread was fine .", "the soup", "2,000 cakes, 9, were .", "x"]


def one_at_a_time(model, sentence):
    """Each token masked by itself, without padding: the definition."""
    tokenizer = tokenization.FullTokenizer(spm_model_file=str(builders.SPM))
    ids = tokenizer.encode(sentence)
    total = 0.0
    for place, label in enumerate(ids, 1):
        masked = [tokenizer.cls_id, *ids, tokenizer.sep_id]
        masked[place] = tokenizer.mask_id
        outputs = model({"input_ids": [masked], "masked_lm_positions": [[place]]})
        total += float(outputs["masked_lm_log_probs"][0, label])
    return total


def pretraining_model(config):
    return huggingface_samples.randomize(pretraining_heads.PretrainingModel(config, seed=1))


FORMS = {
    "albert": builders.tiny_config(),
    "albert_folder": huggingface_samples.CONFIG,
    "bert_folder": huggingface_samples.BERT,
    "hub": builders.tiny_config(),
}


SLOW = [pytest.param(form, marks=pytest.mark.slow) for form in ("bert_folder", "hub")]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["albert", "albert_folder", *SLOW])
def test_scores_are_those_of_one_mask_at_a_time(form, tmp_path):
    """Our folders, those of Hugging Face, and hub modules."""
    config = FORMS[form]
    if form.endswith("_folder"):
        model, folder = huggingface_samples.exported(
            tmp_path, "pretraining", config, form.removesuffix("_folder")
        )
    else:
        model, folder = pretraining_model(config), tmp_path / "ours"
        builders.write_model(folder, model, config)
    if form == "hub":
        source = sources.locate(checkpoint=str(folder))
        hub_export.export_module(model, source, str(tmp_path / "hub"))
        source = sources.locate(hub_handle=str(tmp_path / "hub"))
    else:
        source = sources.locate(checkpoint=str(folder))
    expected = [one_at_a_time(model, sentence) for sentence in SENTENCES]
    assert len(set(expected)) == len(SENTENCES)
    # Batches of several sentences, and of one that is longer than they may be.
    for given in (source, tmp_path / "hub" if form == "hub" else folder):
        scorer = sentence_scores.load(given, batch_size=8)
        np.testing.assert_allclose(scorer.score(SENTENCES), expected, rtol=0, atol=1e-4)


# --- scripts --------------------------------------------------------------------------------------


def write_blimp(folder):
    folder.mkdir()
    rows = [
        {
            "sentence_good": sentence, "sentence_bad": other, "field": "syntax",
            "linguistics_term": "islands",
        }
        for sentence, other in zip(SENTENCES, SENTENCES[1:], strict=False)
    ]  # fmt: skip
    (folder / "wh_island.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


@pytest.mark.slow
def test_the_command(tmp_path, run_script, capsys):
    rows = write_blimp(tmp_path / "blimp")
    config = builders.tiny_config(initializer_range=0.3)
    model = pretraining_heads.PretrainingModel(config, seed=2)
    builders.write_model(tmp_path / "model", model, config)
    flags = {"data_dir": tmp_path / "blimp", "init_checkpoint": tmp_path / "model"}
    run_script(run_blimp, **flags, output_dir=tmp_path / "out", batch_size=8)
    lines = (tmp_path / "out" / "blimp_pairs.jsonl").read_text().splitlines()
    scorer = sentence_scores.load(str(tmp_path / "model"))
    for number, (row, line) in enumerate(zip(rows, map(json.loads, lines), strict=True)):
        kinds = ("good", "bad")
        sentences = [row[f"sentence_{kind}"] for kind in kinds]
        assert [line[f"sentence_{kind}"] for kind in kinds] == sentences
        scores = [line[f"score_{kind}"] for kind in kinds]
        np.testing.assert_allclose(scores, scorer.score(sentences), rtol=0, atol=1e-4)
        assert line["right"] == (scores[0] > scores[1])
        assert (line["paradigm"], line["pair"]) == ("wh_island", number)
    right = sum(
        one_at_a_time(model, row["sentence_good"]) > one_at_a_time(model, row["sentence_bad"])
        for row in rows
    )
    printed = capsys.readouterr().out
    share = f"{right / 3:.3f}"
    assert printed.splitlines()[-1].split() == ["overall", "3", "0", share, share]
    assert (tmp_path / "out" / "blimp.txt").read_text() == printed
    found = json.loads((tmp_path / "out" / "blimp.json").read_text())
    assert found["overall"] == {
        "accuracy": right / 3, "accuracy_ties_right": right / 3, "pairs": 3, "ties": 0
    }  # fmt: skip
    run_script(run_blimp, **flags, limit=1)
    assert capsys.readouterr().out.splitlines()[-1].split()[1] == "1"


def test_mistakes_are_named(tmp_path, run_script):
    write_blimp(tmp_path / "blimp")
    flags = {"data_dir": tmp_path / "blimp"}
    config = builders.tiny_config(max_position_embeddings=8)
    builders.write_model(tmp_path / "labels", heads.ClassifierModel(config, 2, seed=2), config)
    with pytest.raises(file_io.InputError, match="labels/model.ckpt-best lacks .'cls/predictions/"):
        run_script(run_blimp, **flags, init_checkpoint=tmp_path / "labels")
    builders.write_model(tmp_path / "encoder", encoder.AlbertModel(config, 2), config)
    with pytest.raises(file_io.InputError, match="has no head for masked words"):
        run_script(run_blimp, **flags, init_checkpoint=tmp_path / "encoder")
    builders.write_model(
        tmp_path / "short", pretraining_heads.PretrainingModel(config, seed=2), config
    )
    with pytest.raises(file_io.InputError, match="1 to 6 tokens.* found 9 in 'the bread"):
        run_script(run_blimp, **flags, init_checkpoint=tmp_path / "short")
    (tmp_path / "file").write_text("")
    with pytest.raises(file_io.InputError, match="cannot make the folder .*file"):  # not the tokens
        run_script(
            run_blimp, **flags, init_checkpoint=tmp_path / "short", output_dir=tmp_path / "file"
        )
    with pytest.raises(file_io.InputError, match="no weights: give --init_checkpoint"):
        run_script(
            run_blimp, **flags, spm_model_file=builders.SPM,
            albert_config_file=tmp_path / "short" / "albert_config.json",
        )  # fmt: skip


@pytest.mark.slow
def test_pretraining_measures_each_checkpoint(tmp_path, run_script):
    rows = write_blimp(tmp_path / "blimp")
    config = builders.tiny_config()
    (tmp_path / "config.json").write_text(config.to_json_string())
    path = str(tmp_path / "part0.tfrecord")
    record_files.write(path, builders.PRETRAINING_SPECS, builders.pretraining_rows(16), {})
    flags = builders.pretraining_flags(
        tmp_path, tmp_path / "out", blimp_data_dir=tmp_path / "blimp", num_train_steps=2,
        save_checkpoints_steps=2, spm_model_file=builders.SPM,
    )  # fmt: skip
    run_script(run_pretraining, **flags, do_eval=True)
    found = builders.read_results(tmp_path / "out")
    assert [block["global_step"] for block in found] == ["0", "2"]
    assert all("masked_lm_accuracy" in block for block in found)
    for block in found:
        scorer = sentence_scores.load(
            sources.locate(
                sources.Given(spm_model_file=str(builders.SPM)),
                checkpoint=str(tmp_path / "out" / f"model.ckpt-{block['global_step']}"),
            )
        )
        good, bad = (
            scorer.score([row[f"sentence_{kind}"] for row in rows]) for kind in ("good", "bad")
        )
        expected = str(np.float32(np.mean(good > bad)))
        assert block["blimp_accuracy"] == block["blimp_syntax_accuracy"] == expected
        assert block["blimp_accuracy_ties_right"] == str(np.float32(np.mean(good >= bad)))
    lacking = {**flags, "do_eval": True, "output_dir": tmp_path / "new"}
    del lacking["spm_model_file"]
    with pytest.raises(file_io.InputError, match="--blimp_data_dir needs the vocabulary of the re"):
        run_script(run_pretraining, **lacking)
