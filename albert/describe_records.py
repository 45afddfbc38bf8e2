"""Says what is in files of training records, and checks every one of them."""

from absl import flags

from albert.cli import app, common_flags
from albert.data import inspection, tfrecord
from albert.io import file_io
from albert.text import tokenization


def define_flags(flag_values=flags.FLAGS):
    """Flags of this script."""
    text, integer, _, _ = common_flags.definers(flag_values)
    text("input_file", None, "TFRecord files, gzip or not: comma-separated globs.")
    text("vocab_file", None, "WordPiece vocabulary, to show records in words.")
    text("spm_model_file", None, "SentencePiece model, to show records in words.")
    integer("num_examples", 3, "Records to show.")


def main(values):
    """Runs the script with parsed flag values."""
    common_flags.require_given(values, "input_file")
    if values.num_examples < 0:
        raise file_io.InputError(f"--num_examples={values.num_examples} must be at least 0")
    pieces = None
    if values.spm_model_file or values.vocab_file:
        tokenizer = tokenization.FullTokenizer(values.vocab_file, True, values.spm_model_file)
        pieces = [tokenizer.inv_vocab[i] for i in range(tokenizer.vocab_size)]
    paths = tfrecord.named_files(values.input_file, "--input_file")
    description = inspection.describe(paths, values.num_examples)
    print(inspection.report(description, pieces))


if __name__ == "__main__":
    app.run(main, define_flags)
