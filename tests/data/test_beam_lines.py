"""Apache Beam draws the lines that one process draws, for both kinds of vocabulary."""

import collections
import os
import sys

import pytest

from albert.data import beam_runner
from albert.io import file_io
from albert.text import corpus, vocabulary
from tests.support import processes
from tests.support.sources import ROOT

IN_THIS_PROCESS = "--runner=DirectRunner --direct_running_mode=in_memory"
TEXT = "\n\n".join(
    "\n".join(f"\ufeffsentence {n} of {document}\u2028 ends\r" for n in range(1 + document % 9))
    for document in range(60)
)


def write(tmp_path):
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    paths[0].write_text(TEXT, "utf-8", newline="")
    paths[1].write_text(TEXT.replace("of", "or"), "utf-8", newline="")
    return list(map(str, paths))


@pytest.mark.slow
@pytest.mark.parametrize("expected", [40, 10**6])
def test_the_same_lines(tmp_path, expected):
    pytest.importorskip("apache_beam")
    plan = corpus.plan_blocks(write(tmp_path), 1000, 10**6)
    assert len(plan.blocks) > 5
    recipe, found = vocabulary.VocabRecipe(input_sentence_size=expected, random_seed=5), []
    folder = str(tmp_path / "lines")
    for draw in (vocabulary.drawn_lines, beam_runner.draw):
        arguments = {}
        if draw is beam_runner.draw:
            arguments = {"folder": folder, "arguments": IN_THIS_PROCESS.split()}
        counts = collections.Counter()
        found.append((list(draw(plan, recipe, counts, **arguments)), counts))
    assert found[0] == found[1]
    assert len(found[0][0]) == min(expected, found[0][1]["lines"])
    assert not os.path.exists(folder)


@pytest.mark.slow
def test_a_full_disk_is_named_and_nothing_is_left(tmp_path, monkeypatch):
    pytest.importorskip("apache_beam")
    plan, open_file = corpus.plan_blocks(write(tmp_path)), file_io.open_file

    def full(path, mode="r"):
        if "lines-" in str(path) and "w" in mode:
            raise OSError(28, "No space left on device")
        return open_file(path, mode)

    monkeypatch.setattr(file_io, "open_file", full)
    folder, arguments = str(tmp_path / "lines"), IN_THIS_PROCESS.split()
    with pytest.raises(file_io.InputError, match="^cannot write .*lines: No space left"):
        beam_runner.draw(
            plan,
            vocabulary.VocabRecipe(),
            collections.Counter(),
            folder=folder,
            arguments=arguments,
        )
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt"]


def run(script_flags):
    result = processes.run([sys.executable, "-m", "albert.train_vocab", *script_flags], cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["spm", "wordpiece"])
def test_the_script(tmp_path, kind):
    """The same files and report; SentencePiece with two processes, as the script starts them."""
    pytest.importorskip("apache_beam")
    pytest.importorskip("tokenizers")
    common = [f"--input_file={','.join(write(tmp_path))}", "--input_sentence_size=300"]
    common += ["--vocab_size=40"]
    if kind == "wordpiece":
        common[-1:] = ["--vocab_size=45", "--wordpiece"]
    options = ["--num_workers=2"] if kind == "spm" else [f"--beam_args={IN_THIS_PROCESS}"]
    local = run([*common, f"--output_prefix={tmp_path}/out/local"])
    beam = run([*common, f"--output_prefix={tmp_path}/out/beam", "--runner=beam", *options])
    assert beam.replace("out/beam", "out/local").split("\n")[1:] == local.split("\n")[1:]
    assert "sample: 300 lines" in beam
    names = ["txt"] if kind == "wordpiece" else ["model", "vocab"]
    for name in names:
        files = [
            (tmp_path / "out" / f"{runner}.{name}").read_bytes() for runner in ("beam", "local")
        ]
        assert files[0] == files[1]
    assert len(os.listdir(tmp_path / "out")) == 2 * len(names)
