"""A small made-up language: documents to pre-train on and GLUE tasks about the same words.

Each document has one place with its people, things and deeds, one mood, and follows the day in
order, so masked words and the order of sentences can be learned. The labels of the tasks
follow from the grammar alone:

  SST-2  a sentence is positive if its feeling or quality is good, or a bad quality is denied.
  RTE    the second sentence follows from the first if it is later in the day.
  STS-B  the sentences are in order; the score is higher if they are closer in time.

Questions in the format of SQuAD ask who, what, where and when.
"""

import json
import random
from collections.abc import Sequence
from typing import Any

# place: people, deeds, things
PLACES = {
    "kitchen": (
        "cook baker butler waiter",
        "tasted served mixed heated",
        "soup bread cake cheese butter",
    ),
    "harbour": (
        "sailor captain pilot fisher",
        "loaded steered moored towed",
        "boat sail anchor barge ferry",
    ),
    "farm": (
        "farmer shepherd milker herder",
        "fed washed counted chased",
        "cow goat lamb horse piglet",
    ),
    "school": (
        "teacher pupil poet scholar",
        "read copied studied recited",
        "book letter poem story essay",
    ),
    "workshop": (
        "smith carpenter joiner turner",
        "built painted repaired polished",
        "table chair wheel door ladder",
    ),
    "garden": (
        "gardener florist planter weeder",
        "planted watered trimmed picked",
        "rose lily hedge tulip bush",
    ),
}
GOOD, BAD = "good", "bad"
QUALITIES = {
    GOOD: "fine lovely splendid perfect wonderful excellent".split(),
    BAD: "awful ugly horrid terrible dreadful ruined".split(),
}
FEELINGS = {GOOD: "glad happy proud merry".split(), BAD: "sad angry sorry gloomy".split()}
OPPOSITE = {GOOD: BAD, BAD: GOOD}
TIMES = (
    "at dawn|in the morning|before noon|at noon|after lunch|in the afternoon|in the evening|"
    "at night"
).split("|")
SPLITS = (("train", 3000), ("dev", 400), ("test", 100))
NUM_PARAGRAPHS = {"train": 600, "dev": 50}  # of SQuAD, with four questions each
NUM_DOCUMENTS = {"train": 3000, "heldout": 200}

# Words occur with and without punctuation after them: a vocabulary is learned from substrings that
# different words share, so only then does a whole word become a piece.
_STORY = (
    "{time}, the {person} {deed} the {thing} in the {place}.",
    "{time} in the {place}, the {thing} was for the {helper}, and then the {person} {deed}.",
    "{time}, the {person} {deed} the {quality} {thing}.",
    "{time}, the {person} was {feeling} because the {thing} was {quality}.",
    "{time}, the {person} was {feeling}, because the {thing} was not {denied}.",
    "{time}, the {thing} that the {helper} {deed} was {quality}, and the {person} was {feeling}.",
)
_REVIEWS = (
    "the {thing} was {quality} and the {person} was {feeling}.",
    "the {feeling} {person} {deed} the {quality} {thing}.",
    "the {person} {deed} the {thing}, and then the {thing} was {quality}.",
    "the {person} {deed} the {thing}, and then the {thing} was not {denied}.",
)
_ASKED = (  # the question decides which word is the answer
    "{time}, the {person} {deed} the {thing} in the {place}.",
    "in the {place}, the {person} {deed} the {quality} {thing} {time}.",
    "the {thing} in the {place} was {quality}, and the {feeling} {person} {deed} {time}.",
)
_QUESTIONS = {
    "Who was there?": "{person}",
    "What was there?": "{thing}",
    "Where was it?": "{place}",
    "When was it?": "{time}",
}


def _draw(rng: random.Random, place: str, mood: str) -> dict[str, str]:
    """Draws the words of one sentence of a place and a mood: {name in the templates: word}."""
    people, deeds, things = (words.split() for words in PLACES[place])
    person, helper = rng.sample(people, 2)
    return {
        "place": place,
        "person": person,
        "helper": helper,
        "deed": rng.choice(deeds),
        "thing": rng.choice(things),
        "quality": rng.choice(QUALITIES[mood]),
        "denied": rng.choice(QUALITIES[OPPOSITE[mood]]),
        "feeling": rng.choice(FEELINGS[mood]),
        "time": rng.choice(TIMES),
    }


def _sentence(template: str, words: dict[str, str]) -> str:
    """Fills {name: word} into a template and makes its first letter a capital."""
    text = template.format(**words)
    return text[0].upper() + text[1:]


def _document(rng: random.Random) -> str:
    """Returns a document, a sentence per line."""
    place, mood = rng.choice(list(PLACES)), rng.choice((GOOD, BAD))
    cast = _draw(rng, place, mood)
    times = sorted(rng.sample(range(len(TIMES)), rng.randint(4, len(TIMES))))
    lines = []
    for time in times:
        words = _draw(rng, place, mood)
        words.update(person=cast["person"], helper=cast["helper"], time=TIMES[time])
        lines.append(_sentence(rng.choice(_STORY), words))
    return "\n".join(lines) + "\n"


def corpus(seed: int) -> dict[str, str]:
    """Makes {"train", "heldout": text}, a sentence per line, a blank line between documents."""
    rng = random.Random(f"{seed} corpus")
    return {
        name: "\n".join(_document(rng) for _ in range(count))
        for name, count in NUM_DOCUMENTS.items()
    }


def _review(rng: random.Random) -> tuple[tuple[str, ...], str]:
    """Returns ((sentence,), "1" or "0") of SST-2."""
    mood = rng.choice((GOOD, BAD))
    words = _draw(rng, rng.choice(list(PLACES)), mood)
    return (_sentence(rng.choice(_REVIEWS), words),), "1" if mood == GOOD else "0"


def _two_sentences(rng: random.Random, times: Sequence[int]) -> tuple[str, ...]:
    """Makes two sentences of one place and mood at the given times (indices of `TIMES`)."""
    place, mood = rng.choice(list(PLACES)), rng.choice((GOOD, BAD))
    words = [{**_draw(rng, place, mood), "time": TIMES[time]} for time in times]
    return tuple(_sentence(rng.choice(_STORY), one) for one in words)


def _entailment(rng: random.Random) -> tuple[tuple[str, ...], str]:
    """Returns ((first sentence, second sentence), label) of RTE."""
    times = rng.sample(range(len(TIMES)), 2)
    return _two_sentences(rng, times), "entailment" if times[0] < times[1] else "not_entailment"


def _similarity(rng: random.Random) -> tuple[tuple[str, ...], str]:
    """Returns ((first sentence, second sentence), score from 0 to 5) of STS-B."""
    times = sorted(rng.choices(range(len(TIMES)), k=2))
    return _two_sentences(rng, times), f"{5 - 5 * (times[1] - times[0]) / (len(TIMES) - 1):.3f}"


_STS_COLUMNS = "index genre filename year old_index source1 source2 sentence1 sentence2".split()
# folder: (maker of a row, columns of test.tsv, name of the label column, has an index in training)
TASKS = {
    "SST-2": (_review, ["index", "sentence"], "label", False),
    "RTE": (_entailment, ["index", "sentence1", "sentence2"], "label", True),
    "STS-B": (_similarity, _STS_COLUMNS, "score", True),
}


def task_files(name: str, seed: int) -> dict[str, str]:
    """Makes {"train", "dev", "test": text} of one of `TASKS` in the layout of GLUE.

    No row is in two splits; "test" has no labels.
    """
    make_row, columns, label_name, has_index = TASKS[name]
    rng = random.Random(f"{seed} {name}")
    seen, files = set(), {}
    for split, count in SPLITS:
        rows: list[list[str]] = []
        while len(rows) < count:
            texts, label = make_row(rng)
            if texts not in seen:
                seen.add(texts)
                filling = ["demo"] * (len(columns) - 1 - len(texts))
                rows.append([str(len(rows)), *filling, *texts, label])
        header = [*columns, label_name]
        if split == "test":
            table = [row[:-1] for row in [header, *rows]]
        else:
            table = [header, *rows] if has_index else [row[1:] for row in [header, *rows]]
        files[split] = "".join("\t".join(row) + "\n" for row in table)
    return files


def _paragraph(rng: random.Random, number: int) -> dict[str, Any]:
    """Makes a sentence with one question of each kind, in the format of SQuAD.

    The ids of the questions have the number of the paragraph.
    """
    words = _draw(rng, rng.choice(list(PLACES)), rng.choice((GOOD, BAD)))
    template = rng.choice(_ASKED)
    context = _sentence(template, words)
    questions = []
    for question, answer in _QUESTIONS.items():
        start = len(template[: template.index(answer)].format(**words))
        text = context[start : start + len(answer.format(**words))]
        questions.append(
            {
                "id": f"{number}-{question.split()[0].lower()}",
                "question": question,
                "answers": [{"text": text, "answer_start": start}],
            }
        )
    return {"context": context, "qas": questions}


def squad_files(seed: int) -> dict[str, str]:
    """Makes {"train", "dev": text of a SQuAD file} about single sentences; none is in both."""
    rng = random.Random(f"{seed} SQuAD")
    seen, files = set(), {}
    for split, count in NUM_PARAGRAPHS.items():
        paragraphs: list[dict[str, object]] = []
        while len(paragraphs) < count:
            paragraph = _paragraph(rng, len(paragraphs))
            if paragraph["context"] not in seen:
                seen.add(paragraph["context"])
                paragraphs.append(paragraph)
        content = {"version": "1.1", "data": [{"title": "demo", "paragraphs": paragraphs}]}
        files[split] = json.dumps(content, indent=1) + "\n"
    return files
