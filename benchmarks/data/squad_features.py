"""SQuAD features written as TFRecord, and answers decoded, per question and second.

    python -m benchmarks.data.squad_features --squad_file=train-v2.0.json --spm_model_file=x.model

Prints milliseconds per question of training features at the given lengths with one and with
several processes, and of Hugging Face's Rust tokenizer on the same questions if `tokenizers` is
installed (it neither finds answers nor writes files), the ratio, and seconds for decoding windows
with made-up scores. Times are the best of several runs.
"""

import contextlib
import os
import tempfile
import time

import numpy as np
import sentencepiece
import tensorflow as tf
from absl import flags, logging

from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import features as squad_features
from albert.tasks.squad import records as squad_records
from albert.text import tokenization
from benchmarks import harness

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_string("squad_file", None, "Training file in the format of SQuAD.", required=True)
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.", required=True)
    flags.DEFINE_integer("max_seq_length", 384, "Places of the model's sequence.")
    flags.DEFINE_integer("doc_stride", 128, "Pieces from one window to the next.")
    flags.DEFINE_integer("max_query_length", 64, "Most pieces of a question.")
    flags.DEFINE_integer("copies", 1, "Read the file as if it held its articles this many times.")
    flags.DEFINE_integer("num_processes", 2, "Worker processes, and threads of the peer.")
    flags.DEFINE_integer("num_windows", 10000, "Windows to decode.")
    flags.DEFINE_integer("runs", 3, "Runs of which the best counts.")


def best_seconds(function):
    seconds = []
    for _ in range(FLAGS.runs):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def copies_of(examples):
    """The questions `copies` times, with paragraphs that differ, so that all work is repeated."""
    result = []
    for number in range(FLAGS.copies):
        for example in examples:
            copy = squad_features.SquadExample(*(getattr(example, n) for n in example.__slots__))
            copy.paragraph_text += " " * number
            result.append(copy)
    return result


def features(examples, tokenizer, is_training, num_processes):
    return squad_records.convert_examples_to_records(
        examples,
        tokenizer,
        (FLAGS.max_seq_length, FLAGS.doc_stride, FLAGS.max_query_length),
        is_training,
        num_processes,
    )


def write_records(examples, tokenizer, num_processes):
    with (
        tempfile.TemporaryDirectory() as folder,
        tf.io.TFRecordWriter(os.path.join(folder, "train.tf_record")) as writer,
    ):
        for record, _ in features(examples, tokenizer, True, num_processes):
            writer.write(record)


def peer_tokenizer():
    """Hugging Face's tokenizer with the same pieces and the same normalization."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, processors

    sp_model = sentencepiece.SentencePieceProcessor(model_file=FLAGS.spm_model_file)
    pieces = [(sp_model.id_to_piece(i), sp_model.get_score(i)) for i in range(len(sp_model))]
    peer = tokenizers.Tokenizer(models.Unigram(pieces, sp_model.unk_id()))
    spaces = normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
    parts = [spaces, normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    peer.normalizer = normalizers.Sequence(parts)
    peer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = [(name, sp_model.piece_to_id(name)) for name in ("[CLS]", "[SEP]")]
    peer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    # Its stride is the overlap of windows, ours the step.
    overlap = FLAGS.max_seq_length - FLAGS.doc_stride - FLAGS.max_query_length
    peer.enable_truncation(FLAGS.max_seq_length, stride=overlap, strategy="only_second")
    peer.enable_padding(length=FLAGS.max_seq_length)
    return tokenizers, peer


def measure_peer(examples):
    tokenizers, peer = peer_tokenizer()
    pairs = [(example.question_text, example.paragraph_text) for example in examples]
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if FLAGS.num_processes > 1 else "false"

    def run():
        for first in range(0, len(pairs), 1000):
            for encoding in peer.encode_batch(pairs[first : first + 1000]):
                for window in (encoding, *encoding.overflowing):
                    _ = window.ids, window.attention_mask, window.type_ids, window.offsets

    return f"tokenizers {tokenizers.__version__}", best_seconds(run)


def measure_decoding(examples, tokenizer):
    windows = [window for _, window in features(examples, tokenizer, False, 1)]
    windows = windows[: FLAGS.num_windows]
    with_windows = {window.qas_id for window in windows}
    examples = [example for example in examples if example.qas_id in with_windows]
    rng = np.random.default_rng(0)
    shape = (2, len(windows), FLAGS.max_seq_length)
    starts, ends = 4 * rng.standard_normal(shape, np.float32)
    results = {
        window.unique_id: {"start_log_prob": start, "end_log_prob": end}
        for window, start, end in zip(windows, starts, ends, strict=True)
    }
    seconds = best_seconds(lambda: squad_answers.predictions_v1(examples, windows, results, 20, 30))
    return len(windows), seconds


def main():
    logging.set_verbosity(logging.WARNING)
    tokenizer = tokenization.FullTokenizer(spm_model_file=FLAGS.spm_model_file)
    examples = copies_of(squad_answers.read_squad_examples(FLAGS.squad_file, is_training=True))
    for number, example in enumerate(examples):
        example.qas_id = str(number)
    examples = squad_answers.shuffle_examples(examples)
    per_question = 1000 / len(examples)
    print(f"{harness.machine()}; {len(examples)} questions")
    for num_processes in sorted({1, FLAGS.num_processes}):
        ours = best_seconds(lambda n=num_processes: write_records(examples, tokenizer, n))
        print(f"features to TFRecord, num_processes={num_processes}: {ours * per_question:.3f} ms")
    with contextlib.suppress(ImportError):
        name, seconds = measure_peer(examples)
        print(f"{name}, windows and offsets only: {seconds * per_question:.3f} ms a question")
        print(f"peer / ours: {seconds / ours:.2f}")
    count, seconds = measure_decoding(examples, tokenizer)
    print(f"decoding {count} windows, n_best 20: {seconds:.2f} s")


if __name__ == "__main__":
    harness.run(main, define_flags)
