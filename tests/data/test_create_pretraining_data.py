"""The script: flags, refusals before any work, whole runs as users start them."""

import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

from albert import create_pretraining_data
from albert.cli import app, options
from albert.data import instances, masking
from albert.io import file_io
from tests.support import command_lines, processes
from tests.support.processes import wait_until
from tests.support.sources import ROOT

TEXT = "the boats leave before the sun is up\nit rained all night\nnobody knew who\n\n" * 30


def parse(*arguments):
    return command_lines.parse(create_pretraining_data, *arguments)


def settings_of(*arguments):
    settings = options.read(create_pretraining_data.Settings, parse(*arguments))
    settings.check()
    return settings


def job_of(*arguments):
    return create_pretraining_data.make_job(settings_of(*arguments))


NEEDED = ("--input_file=in", "--output_file=out", "--spm_model_file=m")


def test_defaults_are_those_of_the_reference(golden):
    job = job_of(*NEEDED)
    recorded = json.loads((golden / "reference_flags.json").read_text())["create_pretraining_data"]
    default = {name: flag["default"] for name, flag in recorded.items()}
    assert job.dupe_factor == default["dupe_factor"]
    assert job.rules.lower == default["do_lower_case"]
    assert job.settings == instances.Settings(
        max_seq_length=default["max_seq_length"],
        short_seq_prob=default["short_seq_prob"],
        sentence_task="reference",
        random_seed=default["random_seed"],
        mask=masking.MaskingConfig(
            max_predictions_per_seq=default["max_predictions_per_seq"],
            masked_lm_prob=default["masked_lm_prob"],
            ngram=default["ngram"],
            favor_shorter_ngram=default["favor_shorter_ngram"],
            do_whole_word_mask=default["do_whole_word_mask"],
            do_permutation=default["do_permutation"],
        ),
    )


def test_every_flag_reaches_the_job():
    job = job_of(
        *NEEDED,
        "--vocab_file=v",
        "--nodo_lower_case",
        "--dupe_factor=7",
        "--max_seq_length=99",
        "--short_seq_prob=0.5",
        "--sentence_task=sop",
        "--random_seed=-3",
        "--ngram=5",
        "--max_predictions_per_seq=8",
        "--masked_lm_prob=0.2",
        "--nofavor_shorter_ngram",
        "--nodo_whole_word_mask",
        "--do_permutation",
        "--sequence_format=segment_pair",
        "--compress",
    )
    assert job.compress
    assert (job.vocab_file, job.spm_model_file, job.rules.do_lower_case) == ("v", "m", False)
    assert job.dupe_factor == 7
    mask = masking.MaskingConfig(8, 0.2, 5, False, False, True)
    expected = instances.Settings(99, 0.5, "sop", 2**64 - 3, mask, sequence_format="segment_pair")
    assert job.settings == expected


@pytest.mark.parametrize("name", ["full_sentences", "doc_sentences"])
@pytest.mark.parametrize("task", ["", "--sentence_task=none"])
def test_formats_of_one_text_have_no_sentence_task(name, task):
    settings = job_of(*NEEDED, f"--sequence_format={name}", *filter(None, [task])).settings
    assert (settings.sequence_format, settings.sentence_task) == (name, "none")


@pytest.mark.parametrize("task", ["reference", "sop", "nsp", "none"])
def test_formats_of_two_texts_have_any_sentence_task(task):
    for name in ("segment_pair", "sentence_pair"):
        job = job_of(*NEEDED, f"--sequence_format={name}", f"--sentence_task={task}")
        settings = job.settings
        assert (settings.sequence_format, settings.sentence_task) == (name, task)


def test_records_without_masks_are_made_in_one_pass(caplog):
    given = ("--mask_in_training", "--dupe_factor=7", "--max_predictions_per_seq=9")
    job = job_of(*NEEDED, *given)
    assert job.settings.mask is None and job.dupe_factor == 1 and not job.compress
    create_pretraining_data.warn(settings_of(*NEEDED, *given))
    assert not caplog.records
    given = ("--mask_in_training", "--ngram=2", "--nodo_whole_word_mask")
    create_pretraining_data.warn(settings_of(*NEEDED, *given))
    assert "--ngram, --do_whole_word_mask: not used here; masks are drawn by" in caplog.text


@pytest.mark.parametrize("task", ["", "--sentence_task=reference", "--sentence_task=nsp"])
def test_random_next_sentence_is_next_sentence_prediction(task):
    job = job_of(*NEEDED, "--random_next_sentence", *filter(None, [task]))
    assert job.settings.sentence_task == "nsp"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (NEEDED[1:], "--input_file must be given"),
        (NEEDED[::2], "--output_file must be given"),
        (NEEDED[:2], "--spm_model_file .or, for WordPiece, --vocab_file. must be given"),
        ((*NEEDED, "--max_seq_length=4"), "--max_seq_length=4 must be at least 5"),
        ((*NEEDED, "--dupe_factor=0"), "--dupe_factor=0 must be at least 1"),
        ((*NEEDED, "--ngram=0"), "--ngram=0 must be at least 1"),
        ((*NEEDED, "--max_predictions_per_seq=0"), "--max_predictions_per_seq=0 must be"),
        ((*NEEDED, "--num_workers=0"), "--num_workers=0 must be at least 1"),
        ((*NEEDED, "--num_shards=0"), "--num_shards=0 must be at least 1"),
        ((*NEEDED, "--overwrite_shards"), "--overwrite_shards is for --num_shards"),
        ((*NEEDED, "--runner=beam"), "--runner=beam writes shards: --num_shards must be given"),
        ((*NEEDED, "--num_shards=2", "--beam_args=x"), "--beam_args is for --runner=beam"),
        ((*NEEDED, "--masked_lm_prob=15"), "--masked_lm_prob=15.0 must be between 0 and 1"),
        ((*NEEDED, "--short_seq_prob=-0.1"), "--short_seq_prob=-0.1 must be between"),
        ((*NEEDED, "--input_file_mode=w"), '--input_file_mode=w must be "r" or "rb"'),
        (
            (*NEEDED, "--random_next_sentence", "--sentence_task=sop"),
            "--random_next_sentence contradicts --sentence_task=sop",
        ),
        (
            (*NEEDED, "--random_next_sentence", "--sentence_task=none"),
            "--random_next_sentence contradicts --sentence_task=none",
        ),
        (
            (*NEEDED, "--sequence_format=full_sentences", "--sentence_task=reference"),
            "--sentence_task=reference .* contradicts --sequence_format=full_sentences.*; omit it "
            "or choose segment_pair or sentence_pair",
        ),
        (
            (*NEEDED, "--sequence_format=doc_sentences", "--sentence_task=sop"),
            "--sentence_task=sop .* contradicts --sequence_format=doc_sentences",
        ),
        (
            (*NEEDED, "--sequence_format=full_sentences", "--random_next_sentence"),
            "--random_next_sentence. contradicts --sequence_format=full_sentences",
        ),
        (
            (*NEEDED, "--sequence_format=sentence_pair", "--short_seq_prob=0.1"),
            "--short_seq_prob: only for --sequence_format=segment_pair",
        ),
    ],
)
def test_mistakes_in_flags_are_refused_before_any_file_is_looked_at(arguments, message):
    values = parse(*arguments)
    with pytest.raises(file_io.InputError) as caught:
        create_pretraining_data.main(values)
    assert re.search(message, app.with_flag_names(str(caught.value), values))


def test_missing_input_names_the_glob(tmp_path, golden):
    with pytest.raises(file_io.InputError, match=r"input_file: no file matches '.*/none\*'"):
        create_pretraining_data.main(
            parse(
                f"--input_file={tmp_path}/none*",
                f"--output_file={tmp_path}/out",
                f"--spm_model_file={golden.parent / 'tiny.model'}",
            )
        )


# --- whole runs -------------------------------------------------------------------------------


def command(tmp_path, *arguments, vocabulary="--spm_model_file=tests/testdata/tiny.model"):
    return [
        *(sys.executable, "-m", "albert.create_pretraining_data", vocabulary),
        *("--max_seq_length=32", "--max_predictions_per_seq=5", "--dupe_factor=2"),
        *(f"--input_file={tmp_path}/text*", f"--output_file={tmp_path}/a,{tmp_path}/b"),
        *arguments,
    ]


def run(tmp_path, *arguments, **kwargs):
    options = {"cwd": ROOT, "capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    limit = kwargs.pop("preexec_fn", None)
    return subprocess.run(command(tmp_path, *arguments, **kwargs), preexec_fn=limit, **options)


def read(*paths):
    return [
        tf.train.Example.FromString(record.numpy()).features.feature
        for record in tf.data.TFRecordDataset(list(map(str, paths)))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["r", "rb"])
@pytest.mark.parametrize(
    "vocabulary",
    ["--spm_model_file=tests/testdata/tiny.model", "--vocab_file=tests/testdata/tiny_vocab.txt"],
)
def test_a_run_reports_and_writes(tmp_path, mode, vocabulary):
    (tmp_path / "text1").write_text(TEXT)
    (tmp_path / "text2").write_text("Das Wetter\nist schön\u0301, und\n")
    result = run(tmp_path, f"--input_file_mode={mode}", vocabulary=vocabulary)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr and "Warning" not in result.stderr
    rows = read(tmp_path / "a", tmp_path / "b")
    assert result.stdout.startswith(f"{len(rows)} instances in 2 file(s)")
    assert "warning" not in result.stdout
    assert "read: 2 file(s)" in result.stdout and "31 documents, 92 sentences" in result.stdout
    for row in rows:
        assert len(row["input_ids"].int64_list.value) == 32
        assert len(row["masked_lm_weights"].float_list.value) == 5


def test_a_run_of_full_sentences_reports_padding_and_pieces(tmp_path):
    (tmp_path / "text1").write_text(TEXT + "so long a sentence " * 9)
    result = run(tmp_path, "--sequence_format=full_sentences", "--num_workers=1")
    assert result.returncode == 0, result.stderr
    rows = read(tmp_path / "a", tmp_path / "b")
    tokens = sum(sum(row["input_mask"].int64_list.value) for row in rows)
    share = tokens / (32 * len(rows))
    assert f"tokens: {tokens} ({share:.1%}) of the instances' positions" in result.stdout
    assert re.search(
        r"pieces: 2 sentences of more than 30 tokens were cut into \d+ .in 2 ", result.stdout
    )
    assert "label 1" not in result.stdout
    assert " --max_predictions_per_seq=5 --sentence_task=none " in result.stdout


def test_a_text_without_line_breaks_is_noticed(tmp_path):
    (tmp_path / "text1").write_text("so long a sentence " * 99 + "\nshort\n")
    result = run(tmp_path, "--num_workers=1")
    assert re.search(r"warning: \d+ tokens per sentence, .* one sentence per line", result.stdout)


@pytest.mark.slow
def test_reading_mode_changes_nothing(tmp_path):
    (tmp_path / "text1").write_text(TEXT + "schön\n")
    run(tmp_path, "--num_workers=1")
    first = (tmp_path / "a").read_bytes()
    run(tmp_path, "--num_workers=2", "--input_file_mode=rb")
    assert (tmp_path / "a").read_bytes() == first


def test_the_warning_about_the_masked_share_has_numbers(tmp_path):
    (tmp_path / "text1").write_text(TEXT)
    result = run(tmp_path, "--masked_lm_prob=0.5", "--num_workers=1")
    assert "max_predictions_per_seq=5 allows only 15.6% of 32 tokens" in result.stderr


@pytest.mark.slow
def test_no_tensorflow_and_no_hidden_output(tmp_path):
    """The script works, and ends within a second or two, on a machine without TensorFlow."""
    (tmp_path / "text1").write_text(TEXT)
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['tensorflow'] = None\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run(
        command(tmp_path, "--num_workers=2"), cwd=ROOT, env=environment, capture_output=True
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_a_disk_that_fills_up(tmp_path):
    """A limit on the size of files stands for the full disk."""
    (tmp_path / "text1").write_text(TEXT)
    (tmp_path / "a").write_text("precious")
    for workers in (1, 2):
        result = run(
            tmp_path,
            f"--num_workers={workers}",
            "--dupe_factor=30",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        )
        assert result.returncode == 1
        assert f"error: cannot write {tmp_path}" in result.stderr
        assert "File too large" in result.stderr and "Traceback" not in result.stderr
        assert sorted(os.listdir(tmp_path)) == ["a", "text1"]
        assert (tmp_path / "a").read_text() == "precious"


def has_written(process, folder):
    del process
    return list(folder.glob("*.buckets/bucket*"))


def has_started_workers(process, folder):
    del folder
    # The run itself, what keeps its semaphores, two workers: these are not yet ready to work.
    return len(members(process)) == 4


def start_long_run(tmp_path, *arguments, until=has_written):
    (tmp_path / "text1").write_text(TEXT * 20)
    (tmp_path / "a").write_text("precious")
    process = subprocess.Popen(
        command(tmp_path, "--dupe_factor=100000", "--num_workers=2", *arguments),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: until(process, tmp_path), process)
    return process


def members(process):
    """Processes of the session that the run leads, without those that have ended."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == process.pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def wait_until_all_ended(process):
    wait_until(lambda: not members(process), seconds=20, say=lambda: "worker processes still run")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks at processes through /proc")
@pytest.mark.parametrize("until", [has_started_workers, has_written])
@pytest.mark.parametrize(
    "send, kind, status, message",
    [
        # As a terminal does: to all processes of the run.
        (os.killpg, signal.SIGINT, 130, "interrupted"),
        (os.killpg, signal.SIGHUP, 75, "ended by SIGHUP; the output files are unchanged"),
        (os.kill, signal.SIGTERM, 75, "ended by SIGTERM; the output files are unchanged"),
        (os.killpg, signal.SIGTERM, 75, "ended by SIGTERM; the output files are unchanged"),
    ],
)
def test_an_ended_run_removes_its_temporary_files(tmp_path, send, kind, status, message, until):
    process = start_long_run(tmp_path, until=until)
    send(process.pid, kind)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == status
    assert message in errors and "Traceback" not in errors
    assert sorted(os.listdir(tmp_path)) == ["a", "text1"]
    assert (tmp_path / "a").read_text() == "precious"
    wait_until_all_ended(process)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks at processes through /proc")
def test_workers_end_with_a_killed_parent_and_the_next_run_is_right(tmp_path):
    process = start_long_run(tmp_path)
    process.kill()
    process.communicate(timeout=30)
    wait_until_all_ended(process)
    (leftover,) = tmp_path.glob("*.buckets")
    (tmp_path / "text1").write_text(TEXT)
    result = run(tmp_path, "--num_workers=2")
    assert result.returncode == 0
    assert leftover.name in result.stderr
    instances = int(result.stdout.split()[0])
    assert len(read(tmp_path / "a", tmp_path / "b")) == instances


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks at processes through /proc")
def test_a_killed_worker_ends_the_run_with_advice(tmp_path):
    process = start_long_run(tmp_path)
    workers = [pid for pid in members(process) if pid != process.pid]
    for pid in workers:
        if b"spawn_main" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
            break
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "a worker process was killed" in errors and "--num_workers" in errors
    assert "Traceback" not in errors
    assert sorted(os.listdir(tmp_path)) == ["a", "text1"]
    wait_until_all_ended(process)


@pytest.mark.slow
def test_killed_runs_of_shards_end_with_the_same_files(shared):
    """At random moments, with workers that are left alone; the benchmark does so twenty times."""
    result = processes.run(
        [
            *(sys.executable, "-m", "benchmarks.robustness.killed_data_creation", "--kills=3"),
            f"--input_file={shared}/data/corpus/wiki_000.txt",
            f"--spm_model_file={shared}/data/spm/30k-clean.model",
        ],
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 of 3 ended with identical files" in result.stdout


@pytest.mark.slow
def test_shards_are_reported_and_kept(tmp_path):
    (tmp_path / "text1").write_text(TEXT)
    output = f"--output_file={tmp_path}/part"
    result = run(tmp_path, output, "--num_shards=2", "--num_workers=1")
    assert result.returncode == 0, result.stderr
    assert " instances in 2 file(s)" in result.stdout
    names = [f"part-0000{i}-of-00002" for i in range(2)]
    assert sorted(os.listdir(tmp_path)) == [*names, "part.manifest.json", "text1"]
    again = run(tmp_path, output, "--num_shards=2", "--num_workers=1")
    assert again.stdout.splitlines()[1:] == result.stdout.splitlines()[1:]
    assert "all shards were made earlier" in again.stderr
    refused = run(tmp_path, output, "--num_shards=2", "--num_workers=1", "--ngram=2")
    assert refused.returncode == 1
    assert "--ngram=3, now it is 2" in refused.stderr and "--overwrite_shards=" in refused.stderr
