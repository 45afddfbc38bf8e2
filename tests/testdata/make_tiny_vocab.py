"""Makes the tests' vocabularies: `tiny.model` (SentencePiece) and `tiny_vocab.txt` (WordPiece).

    python tests/testdata/make_tiny_vocab.py [output folder, default: the folder of this script]

The text is written for this purpose. The SentencePiece options are the recipe of the published
English models with fewer pieces; training is deterministic, and a test makes the files again.
"""

import io
import pathlib
import sys

VOCAB_SIZE = 400
# Other versions of SentencePiece draw slightly other pieces from the same text.
MADE_WITH_SENTENCEPIECE = "0.2.3"

SENTENCES = """\
The old harbour lies at the end of a narrow road between two hills.
Every morning the boats leave before the sun is up, and they come back at noon.
My grandmother was a teacher in the village school for more than forty years.
She said that a good question is worth more than a quick answer.
The river was so low last summer that children could walk to the other side.
Nobody knew who had painted the door of the library green.
When the train stopped, a tall man with a small dog got out and looked around.
He had a letter in his hand, but he did not open it.
"Where is the house of the doctor?" he asked the woman at the window.
"Go up the hill (the steep one), and turn left at the well," she answered.
It rained all night, and in the morning the garden was full of water.
The cook made bread, soup and a cake with apples from the market.
I think we should have taken the early bus, because the museum closes at five.
Do you know why the clock on the tower is always ten minutes late?
They sold the farm in spring; the new owners keep sheep and bees.
A well-known painter lived here – at least, that is what the sign says.
The teacher wrote three long words on the board and asked us to read them.
There was nothing in the box but a key, a map and some old coins.
Our neighbour has been working on his boat since the beginning of the year.
If the wind is strong enough, the ferry stays on the island until it is over.
The children played under the bridge while their parents were talking.
You can see the mountains from the roof when the air is clear.
Which of these books did your brother give to the library?
We were not able to find the answer, although we looked for it everywhere.
The singer forgot the second verse, laughed, and started again.
Most people in the town speak two languages, and some speak three.
This is the first time that I have seen snow on the beach.
The baker opens at six o'clock; the post office doesn't open before nine.
What would you do if you found a bag of money in the street?
It isn't far: go straight on, cross the bridge, and you're there.
The winter was long and cold, but the people had wood and potatoes.
He is one of those men who can repair anything with a knife and some string.
After the concert the players put their instruments into the old van.
The lighthouse was built from grey stone that was brought here by ship.
No one has lived in the lighthouse since the last keeper went away.
Her answer was short, friendly and completely wrong.
The price of fish went up again, so we had beans for dinner.
A group of students measured the height of the water every hour.
The results were printed in the newspaper and read by almost nobody.
Their plan was simple: start early, walk slowly, and stop often.
The zoo is just behind the jazz club, but the juice there is not for free!
My brother and my sister were born in the same year, on the same day.
The government of the island said that it would build a new school and a bridge.
There are many people who think that the world was better when they were young.
During the war the city lost its university, its theatre and most of its churches.
The company that made the engine was founded by two engineers from the south.
She has written several books about the history of music and one about the sea.
After that, the team played three more games and won the last one.
In the north of the country, the summer is short and the nights are bright.
He was the first player from his club who was called to the national team.
The film tells the story of a girl who lives alone with her father.
It was one of the best days of my life, and I will never forget it!
You should not have said that, because now everybody knows about it.
They would like to know which part of the work could be done by machines.
Many of the houses were built in a time when there was no water in the street.
The question is not what you look at, but what you see.
I had never heard of the place before, so I looked it up on a map.
The king and the queen were both over seventy when they came to the town.
If you want to go there, you will have to take a bus and then a boat.
Her mother used to say that only the moon can be in two places at once.
A man without a hat was standing in the middle of the square and singing.
The number of visitors has become smaller since the end of the festival.
We found the children where we had left them: in front of the television.
The other group, which was much larger, took the road along the river.
He often works at night, when nobody is calling him, and sleeps during the day.
What happened next is known from the letters that the captain sent to his wife.
This kind of stone is very hard, so that it is often used for stairs.
Between the two world wars the harbour was used by fishing boats only.
Some of the best players of the team left the club at the end of the season.
It is said that the church was built under the rule of a foreign king.
There will be music, dancing, and something to eat for everybody.
The water was so clear that we could see every stone on the ground.
The first machine was too heavy, the second too slow, and the third too expensive.
Such things happen to other people, but they have never happened to me.
No one could say how long it would take or what it would cost.
They should have told us about this problem before we started the work.
"""

NUMBER_SENTENCES = """\
In {a}, the village had {b},000, and later {c},000, people.
The ticket costs £{b}.{c} or €{c}.{b}, which is {a} cents more than before.
On page {b}, line {c}, the author names the year {a}, not {d}.
Rooms {b}, {c}, {d}, and {a} are free; room {c}{b} is closed.
"""


def sentences():
    """The lower-cased training text, one sentence an item."""
    yield from SENTENCES.lower().splitlines()
    for i in range(5):
        numbers = {"a": 1948 + 17 * i, "b": 2 + 3 * i, "c": 1 + 7 * i, "d": 10 + i}
        yield from NUMBER_SENTENCES.lower().format(**numbers).splitlines()


def sentencepiece_model():
    """The serialized SentencePiece model."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences(),
        model_writer=model,
        model_type="unigram",
        vocab_size=VOCAB_SIZE,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        user_defined_symbols=list('()"-.–£€'),
        character_coverage=0.99995,
        shuffle_input_sentence=True,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def wordpiece_vocab():
    """Lines of a WordPiece vocabulary: special pieces, characters, common words and endings."""
    text = " ".join(sentences())
    characters = sorted({character for character in text if not character.isspace()})
    counts = {}
    for word in "".join(c if c.isalnum() else " " for c in text).split():
        counts[word] = counts.get(word, 0) + 1
    words = sorted(word for word, count in counts.items() if count > 1 and len(word) > 1)
    endings = ["##s", "##ing", "##ed", "##er", "##ly", "##en", "##es", "##al", "##on", "##or"]
    continued = ["##" + character for character in characters if character.isalnum()]
    special = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    chinese = list("的一是不我有大在人了中国")
    return list(dict.fromkeys(special + characters + continued + endings + words + chinese))


def main(folder):
    (folder / "tiny.model").write_bytes(sentencepiece_model())
    text = "".join(piece + "\n" for piece in wordpiece_vocab())
    (folder / "tiny_vocab.txt").write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
