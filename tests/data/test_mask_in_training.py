"""Pre-training on records without masks, from text to weights, and what is refused on the way."""

import gzip
import os
import sys

import pytest
import tensorflow as tf

from albert import run_pretraining
from albert.cli import pretraining
from albert.data import dynamic_masking, instance_files, instances, masking, record_files
from albert.io import file_io
from albert.model import encoder
from tests.support import command_lines, processes
from tests.support.builders import assert_same, read_results, weights
from tests.support.sources import ROOT as REPOSITORY

TINY = REPOSITORY / "tests" / "testdata" / "tiny.model"
OTHER_VOCABULARY = REPOSITORY / "tests" / "testdata" / "tiny_vocab.txt"
LENGTH = 32
CONFIG = encoder.AlbertConfig(
    vocab_size=400, embedding_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=32, max_position_embeddings=LENGTH,
)  # fmt: skip
LINES = (
    "the boats leave before the sun is up", "it rained all night", "nobody knew who had come",
    "the cook made bread, soup and a cake with apples", "a narrow road ends at the old harbour",
)  # fmt: skip


def make(text, outputs, compress=False, **settings):
    settings = {"max_seq_length": LENGTH, "mask": None, **settings}
    passes = settings.pop("dupe_factor", 1)
    job = instance_files.Job(
        instances.Settings(**settings), passes, spm_model_file=str(TINY), compress=compress
    )
    return instance_files.create([str(text)], list(map(str, outputs)), job)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    documents = [[LINES[(i + j) % 5] for j in range(2 + i % 7)] for i in range(60)]
    text = "\n\n".join("\n".join(lines) for lines in documents)
    file_io.write_text(str(folder / "text"), text)
    file_io.write_text(str(folder / "config.json"), CONFIG.to_json_string())
    make(folder / "text", [folder / "plain-0", folder / "plain-1"])
    make(folder / "text", [folder / "packed-0", folder / "packed-1"], compress=True)
    make(folder / "text", [folder / "static"], mask=masking.MaskingConfig(4), dupe_factor=10)
    static = {"mask": masking.MaskingConfig(4), "dupe_factor": 10, "compress": True}
    make(folder / "text", [folder / "static.gz"], **static)
    return folder


def flags_for(inputs, output_dir, **changes):
    flags = {
        "albert_config_file": inputs / "config.json", "input_file": inputs / "plain-*",
        "output_dir": output_dir, "spm_model_file": TINY, "max_seq_length": LENGTH,
        "max_predictions_per_seq": 4, "train_batch_size": 16, "eval_batch_size": 16,
        "num_train_steps": 4, "num_warmup_steps": 2, "save_checkpoints_steps": 2,
        "learning_rate": 0.01, **changes,
    }  # fmt: skip
    return {name: value for name, value in flags.items() if value is not None}


# --- sizes and files ----------------------------------------------------------------------------


def test_one_pass_takes_an_eighth_of_ten_with_masks_or_less(inputs):
    compact = sum(os.path.getsize(inputs / f"plain-{i}") for i in range(2))
    assert 8 * compact < os.path.getsize(inputs / "static")
    passes = [record_files.count_records([str(inputs / name)]) for name in ("static", "static.gz")]
    once = record_files.count_records([str(inputs / f"plain-{i}") for i in range(2)])
    assert passes[0] == passes[1] and 9 * once < passes[0] < 11 * once


@pytest.mark.parametrize(
    ("plain", "packed"),
    [("plain-0", "packed-0"), ("plain-1", "packed-1"), ("static", "static.gz")],
)
def test_compressed_files_hold_the_same_bytes(inputs, plain, packed):
    content = (inputs / packed).read_bytes()
    assert gzip.decompress(content) == (inputs / plain).read_bytes()
    assert len(content) < os.path.getsize(inputs / plain)


def test_the_same_text_gives_the_same_compressed_bytes(inputs, tmp_path):
    make(inputs / "text", [tmp_path / "a", tmp_path / "b"], compress=True)
    for name, packed in (("a", "packed-0"), ("b", "packed-1")):
        assert (tmp_path / name).read_bytes() == (inputs / packed).read_bytes()


def test_a_run_of_the_script_says_that_it_is_one_pass(inputs, tmp_path):
    command = [
        *(sys.executable, "-m", "albert.create_pretraining_data", f"--input_file={inputs}/text"),
        *(f"--output_file={tmp_path}/out", f"--spm_model_file={TINY}", "--max_seq_length=32"),
        *("--mask_in_training", "--compress", "--ngram=2", "--dupe_factor=10", "--num_workers=1"),
    ]
    result = processes.run(command, cwd=REPOSITORY)
    assert result.returncode == 0, result.stderr
    assert (
        "one pass is made, whatever dupe_factor" in result.stdout and "in 1 passes" in result.stdout
    )
    assert "--ngram: not used here" in result.stderr
    records_made = int(result.stdout.split()[0])
    whole = sum(record_files.count_records([str(inputs / f"plain-{i}")]) for i in range(2))
    assert record_files.count_records([str(tmp_path / "out")]) == records_made == whole


# --- runs -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_resumed_run_ends_as_an_unbroken_one_on_files_of_any_form(
    inputs, tmp_path, run_script, caplog
):
    flags = {"do_eval": True, "input_file": f"{inputs}/plain-0,{inputs}/plain-1"}
    run_script(run_pretraining, **flags_for(inputs, tmp_path / "whole", **flags))
    assert "max_predictions_per_seq=4 allows only 12.5% of 32 tokens" in caplog.text
    for path in (tmp_path / "whole").glob("model.ckpt-2.*"):
        file_io.make_dirs(str(tmp_path / "resumed"))
        file_io.copy(str(path), str(tmp_path / "resumed" / path.name))
    # Compressed files, also with others, have the same records.
    flags["input_file"] = f"{inputs}/packed-0,{inputs}/plain-1"
    run_script(run_pretraining, **flags_for(inputs, tmp_path / "resumed", **flags))
    assert_same(*(weights(str(tmp_path / name / "model.ckpt-4")) for name in ("whole", "resumed")))
    assert (tmp_path / "whole" / TINY.name).read_bytes() == TINY.read_bytes()
    # The same masks at every evaluation.
    assert read_results(tmp_path / "whole")[-1] == read_results(tmp_path / "resumed")[-1]


@pytest.mark.slow
def test_each_split_may_have_its_kind_and_permutation_doubles_the_places(
    inputs, tmp_path, run_script, caplog
):
    flags = {"num_train_steps": 1, "do_eval": True, "do_permutation": True}
    flags |= {"train_batch_size": None, "train_batch_tokens": 100, "group_by_length": True}
    static = inputs / "static.gz"
    run_script(run_pretraining, **flags_for(inputs, tmp_path, eval_input_file=static, **flags))
    assert len(read_results(tmp_path)) == 2
    paths = [str(inputs / f"plain-{i}") for i in range(2)]
    examples = map(
        tf.train.Example.FromString, record_files.serialized_examples(paths).as_numpy_iterator()
    )
    tokens = [len(example.features.feature["input_ids"].int64_list.value) for example in examples]
    size = round(100 / (sum(tokens) / len(tokens)))
    assert f"--train_batch_size={size} / 4096" in caplog.text  # in the rule for the rate


@pytest.mark.slow
def test_masks_of_compressed_records_can_be_drawn_again(inputs, tmp_path, run_script):
    flags = {"num_train_steps": 1, "masked_lm_budget": 0.2, "ngram": 2}
    flags |= {"train_batch_size": None, "train_batch_tokens": 100}
    static = inputs / "static.gz"
    run_script(run_pretraining, **flags_for(inputs, tmp_path, input_file=static, **flags))
    assert weights(str(tmp_path / "model.ckpt-1"))


# --- mistakes -------------------------------------------------------------------------------------

STATIC = {"input_file": "static", "max_predictions_per_seq": 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"spm_model_file": None},
            "plain-0 holds records without masks; masking needs the vocabulary of the records: "
            "--spm_model_file or --vocab_file must be given",
        ),
        (
            {"spm_model_file": None, "vocab_file": OTHER_VOCABULARY},
            f"plain-0 was made with another vocabulary than {OTHER_VOCABULARY}: give, as "
            "--spm_model_file or --vocab_file, the one",
        ),
        ({"input_file": "*-0,static"}, "packed-0 holds records without masks, .*static records w"),
        (
            {"input_file": "*-1", "eval_input_file": "*-0,static", "do_eval": True},
            "give files of one kind",
        ),
        (
            {**STATIC, "ngram": 2, "do_whole_word_mask": False},
            "--ngram, --do_whole_word_mask: .*static holds records with masks, which are used as",
        ),
        (
            {**STATIC, "masked_lm_budget": 0.1, "masked_lm_prob": 0.2},
            "--masked_lm_prob cannot be combined with --masked_lm_budget=0.1",
        ),
        (
            {**STATIC, "masked_lm_budget": 0.1, "spm_model_file": None},
            "--masked_lm_budget needs the vocabulary of the records: --spm_model_file or",
        ),
        (
            {"distill_unmasked": 0.5},
            "examples without masks teach hidden states; give --teacher, and a",
        ),
        ({"masked_lm_budget": 0.1}, "those of .*plain-0 have none: give --masked_lm_prob=0.1"),
        ({"masked_lm_prob": 1.5}, "--masked_lm_prob=1.5 must be between 0 and 1"),
        ({"train_batch_tokens": 100}, "--train_batch_tokens=100 cannot be combined with --train_b"),
        ({"group_by_length": True}, "--group_by_length divides batches of --train_batch_tokens"),
        (
            {"train_batch_size": None, "train_batch_tokens": 63},
            "--train_batch_tokens=63 must be at least twice --max_seq_length=32",
        ),
        (
            {
                "train_batch_size": None,
                "train_batch_tokens": 100,
                "gradient_accumulation_steps": 2,
            },
            "which cannot be split equally among devices or --gradient_accumulation_steps",
        ),
        ({"ngram": 0}, "--ngram=0 must be at least 1"),
        ({"max_seq_length": 16}, r"plain-\d, record \d+ has \d+ tokens, more than --max_seq_leng"),
    ],
)
def test_mistakes_are_named(inputs, tmp_path, run_script, changes, message):
    for name in {"input_file", "eval_input_file"} & changes.keys():
        files = ",".join(str(inputs / pattern) for pattern in changes[name].split(","))
        changes = {**changes, name: files}
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_pretraining, **flags_for(inputs, tmp_path / "out", **changes))


@pytest.mark.parametrize("name", ["packed-0", "static.gz"])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_compressed_files_are_named(inputs, tmp_path, run_script, name, damage):
    content = bytearray((inputs / name).read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    else:
        content[len(content) // 2] ^= 0xFF
    path = tmp_path / "damaged"
    path.write_bytes(content)
    flags = flags_for(inputs, tmp_path / "out", input_file=f"{inputs / name},{path}")
    with pytest.raises(file_io.InputError, match=rf"{path} is damaged: .*byte \d+.*make it again"):
        run_script(run_pretraining, **flags)


@pytest.mark.slow
def test_a_record_of_a_compressed_file_is_named(inputs, tmp_path, run_script):
    """An invalid masked position, in the last of the records."""
    serialized = list(record_files.serialized_examples([str(inputs / "static.gz")]).take(40))
    example = tf.train.Example.FromString(serialized[-1].numpy())
    example.features.feature["masked_lm_positions"].int64_list.value[0] = -1
    path = tmp_path / "other"
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for record in [*(x.numpy() for x in serialized[:-1]), example.SerializeToString()]:
            writer.write(record)
    flags = flags_for(inputs, tmp_path / "out", input_file=path, spm_model_file=None)
    with pytest.raises(file_io.InputError, match=rf"^{path}, record 40: masked_lm_positions\[0\]"):
        run_script(run_pretraining, **flags)


def parse(*arguments):
    return command_lines.read(run_pretraining, "--input_file=x", "--output_dir=x", *arguments)


def test_defaults_are_those_of_masking():
    masks = parse("--max_predictions_per_seq=20").masks
    assert masks.config() == masking.MaskingConfig()
    assert masks.given_rules() == []


def test_every_flag_of_masks_reaches_the_masker(inputs):
    files = dict.fromkeys(("train", "dev"), dynamic_masking.inspect([str(inputs / "plain-0")]))
    given = ("--masked_lm_prob=0.3", "--ngram=2", "--nofavor_shorter_ngram")
    given += ("--nodo_whole_word_mask", "--do_permutation")
    settings = parse(
        *given, f"--spm_model_file={TINY}", f"--albert_config_file={inputs / 'config.json'}",
        "--max_predictions_per_seq=9", "--seed=5", "--distill_unmasked=0.4",
    )  # fmt: skip
    masker = pretraining.find_masker(settings, files, 400)
    assert masker.config == masking.MaskingConfig(9, 0.3, 2, False, False, True)
    assert (masker.seed, masker.whole) == (5, 0.4)
    assert masker.vocabulary.fingerprint in files["dev"].fingerprints.values()
    assert len(settings.masks.given_rules()) == len(given)


def test_records_with_masks_are_whole_where_masks_are_drawn_again(inputs):
    files = dict.fromkeys(("train", "dev"), dynamic_masking.inspect([str(inputs / "static.gz")]))
    given = ("--distill_unmasked=0.4", f"--spm_model_file={TINY}")
    given += (f"--albert_config_file={inputs / 'config.json'}",)
    with pytest.raises(file_io.InputError, match="^--distill_unmasked: .* holds records with mask"):
        pretraining.find_masker(parse(*given), files, 400)
    again = parse(*given, "--masked_lm_budget=0.2")
    assert pretraining.find_masker(again, files, 400).whole == 0.4
