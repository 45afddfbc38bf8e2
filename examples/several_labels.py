r"""Writes sentences of SST-2 (GLUE) with several labels each: what they say about a film, and how.

    python examples/several_labels.py --data_dir=glue --output_dir=films

`praise` is the label of SST-2; the others are derived from words. train.csv has train phrases of
at least six words; the dev sentences become dev.csv and test.csv, as SST-2 has no test labels.
"""

import argparse
import collections
import csv
import pathlib
import re

from albert.tasks import glue

SEPARATOR = ","
LEAST = 6  # words of a text
WORDS = {
    "acting": "actors? actress(es)? acting cast performances? performers? star stars",
    "comparison": "more less than most least best worst better worse",
    "comedy": "comedy comedies comic funny humor hilarious laughs? laughter jokes? gags?",
    "negation": "not no never nothing neither nor without hardly n't",
    "story": "story stories plots? script screenplay tale tales narrative",
}
PATTERNS = {
    name: re.compile(rf"(^| )({'|'.join(words.split())})( |$)") for name, words in WORDS.items()
}


def labels_of(example):
    """Returns the labels of an example of SST-2 in alphabetical order."""
    labels = {name for name, pattern in PATTERNS.items() if pattern.search(example.text_a)}
    return sorted(labels | ({"praise"} if example.label == "1" else set()))


def rows_of(data_dir, split, every, first):
    """Returns (text, labels joined) of a part of a split: each `every`-th example from `first`."""
    examples = glue.get_task("SST-2").examples(data_dir, split, use_spm=False)
    chosen = [example for example in examples if len(example.text_a.split()) >= LEAST]
    return [
        (example.text_a.strip(), SEPARATOR.join(labels_of(example)))
        for example in chosen[first::every]
    ]


def write(path, rows):
    """Writes a file of texts and labels, and prints how many texts have each label."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "labels"), *rows])
    counts = collections.Counter(name for _, labels in rows for name in labels.split(SEPARATOR))
    named = ", ".join(f"{name or 'none'} {number}" for name, number in sorted(counts.items()))
    print(f"{path}: {len(rows)} texts; {named}")


def main():
    """Writes the three files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data_dir", required=True, help="folder of the folders of GLUE")
    parser.add_argument("--output_dir", type=pathlib.Path, default=pathlib.Path("films"))
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    parts = {"train": ("train", 1, 0), "dev": ("dev", 2, 0), "test": ("dev", 2, 1)}
    for name, part in parts.items():
        write(options.output_dir / f"{name}.csv", rows_of(options.data_dir, *part))


if __name__ == "__main__":
    main()
