"""Parses the requests of a server, from JSON to examples, and writes results as JSON.

Each kind of model has a `RequestSchema`, which describes its examples. A request in the own format
of the toolkit holds an example, or a list of examples under "examples".

The `place` of a value in the request is for messages.
"""

import base64
import binascii
import dataclasses
import functools
import itertools
import json
import string
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from albert.io import file_io, json_shapes, tables
from albert.serving import batcher

_EXAMPLES = "examples"
MAX_ANSWERS = 20
_MAX_OPTIONS = len(string.ascii_uppercase)
_DEFAULT_ANSWERS = 3
_MASK = "[MASK]"
_MAX_MASKS = 16  # of a text: each takes memory for the whole vocabulary
TRUNCATED = "truncated"  # field of a result whose texts were cut to fit the model's input
_TOKEN_CHARACTERS = 5  # approximate, to compare lengths before a text is tokenized
_MIN_LENGTH = 40  # characters: shorter texts take no less time
# Maximum length after normalization, as a multiple of `Limits.characters`. Korean needs a factor of
# three, and a single character can become 18.
_MAX_GROWTH = 4
_MAX_SHOWN = 60  # characters of a value in a message


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits on the size of a request: examples, and characters of all texts of an example.

    Texts that exceed `_MAX_GROWTH` times the characters after normalization are truncated, or
    rejected if the model reads the whole text.
    """

    examples: int = 64
    characters: int = 20_000


def unexpected(place: str, expected: str, found: object) -> file_io.InputError:
    """Returns the error of a request that has something else than expected at a place."""
    return file_io.InputError(f"{place}: expected {expected}, found {found}")


# --- values of fields ---------------------------------------------------------------------------


def _text(value: Any, place: str) -> str:
    if isinstance(value, dict) and value.keys() == {"b64"}:  # TensorFlow Serving's form
        json_shapes.check(value["b64"], str, f"{place}.b64")
        try:
            value = base64.b64decode(value["b64"], validate=True).decode()
        except (binascii.Error, ValueError) as error:
            raise unexpected(
                f"{place}.b64", "UTF-8 text in base64", f"{value['b64']!r:.{_MAX_SHOWN}} ({error})"
            ) from error
    json_shapes.check(value, str, place)
    if not value.strip():
        raise unexpected(place, "a text", "an empty one")
    return value


def _masked(value: Any, place: str) -> str:
    text = _text(value, place)
    masks = text.count(_MASK)
    if not 1 <= masks <= _MAX_MASKS:
        raise unexpected(
            place, f"a text with 1 to {_MAX_MASKS} {_MASK} in the place of words", masks
        )
    return text


def _words(value: Any, place: str) -> list[str]:
    if isinstance(value, list):
        words = [_text(word, f"{place}[{number}]") for number, word in enumerate(value)]
    else:
        words = _text(value, place).split()
    if not words:
        raise unexpected(place, "at least one word", "none")
    for number, word in enumerate(words):
        if not tables.is_name(word):
            raise unexpected(
                f"{place}[{number}]",
                "a word without tabs, line breaks and halves of surrogate pairs",
                repr(word),
            )
    return words


def _options(value: Any, place: str) -> list[str]:
    json_shapes.check(value, list, place)
    if not 2 <= len(value) <= _MAX_OPTIONS:
        raise unexpected(place, f"2 to {_MAX_OPTIONS} texts", len(value))
    return [_text(option, f"{place}[{number}]") for number, option in enumerate(value)]


def _count(value: Any, place: str) -> int:
    json_shapes.check(value, int, place)
    if not 1 <= value <= MAX_ANSWERS:
        raise unexpected(place, f"1 to {MAX_ANSWERS}", value)
    return value


# --- examples of each kind of model -------------------------------------------------------------


_TEXT_SCHEMA = {"type": "string", "pattern": r"\S"}


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of examples."""

    name: str
    example: str | int | list[str]  # for descriptions
    read: Callable[[Any, str], Any] = _text  # ``(parsed JSON, place for messages) -> value``
    # JSON Schema of what `read` takes.
    schema: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _TEXT_SCHEMA)
    is_long: bool = False  # whether it is the text that an example is about
    other_name: str | None = None  # that a client may use instead
    default: int | None = None  # value if it is missing; None: it is required
    needs: str | None = None  # word that its text must have; None: any text will do


@dataclasses.dataclass(frozen=True)
class RequestSchema:
    """The examples of a kind of model."""

    entry: str  # path of requests in the toolkit's format
    fields: tuple[Field, ...]  # the optional ones at the end
    is_split: bool = False  # whether long texts become several sequences; else they are truncated
    own_examples: tuple[dict[str, Any], ...] = ()  # dev examples, see `example_requests`

    @functools.cached_property
    def required(self) -> tuple[Field, ...]:
        """The fields that every example has."""
        return tuple(field for field in self.fields if field.default is None)

    @functools.cached_property
    def optional(self) -> dict[str, Any]:
        """{name: default} of the other fields."""
        return {f.name: f.default for f in self.fields if f.default is not None}

    @functools.cached_property
    def by_name(self) -> dict[str, Field]:
        """The fields by all names that clients may use."""
        others = {field.other_name: field for field in self.fields if field.other_name}
        return {field.name: field for field in self.fields} | others

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of an example."""
        properties = {
            field.name: {**field.schema, "examples": [field.example]} for field in self.fields
        }
        for name, default in self.optional.items():
            properties[name]["default"] = default
        own = {"examples": list(self.own_examples)} if self.own_examples else {}
        required = [field.name for field in self.required]
        return {"type": "object", "properties": properties, "required": required, **own}

    @property
    def example(self) -> dict[str, Any]:
        """An example with the required fields, of the model's own data if there is any."""
        if self.own_examples:
            return dict(self.own_examples[0])
        return {field.name: field.example for field in self.required}

    @property
    def bare(self) -> str | None:
        """Name of the field whose value may come without a name, or None."""
        return self.required[0].name if len(self.required) == 1 else None

    def read(
        self, value: object, place: str, limits: Limits, column: tuple[str, int] | None = None
    ) -> dict[str, Any]:
        """Reads an example, a value of JSON, as a dict by field.

        Args:
          place: name of the example in messages; "" for the whole request.
          column: (name of the columns, row), where each field is a column in messages.
        """
        json_shapes.check(value, dict, place or "the request")
        parts = cast(dict[str, Any], value)

        def at(name: str) -> str:
            if column:
                return f"{column[0]}.{name}[{column[1]}]"
            return f"{place}.{name}" if place else name

        example: dict[str, Any] = {}
        for name, part in parts.items():
            field = self.by_name.get(name)
            if field is None or field.name in example:
                raise unexpected(at(name), self._expected(), repr(name))
            example[field.name] = field.read(part, at(name))
        for field in self.required:
            if field.name not in example:
                names = ", ".join(parts) or "nothing"
                raise unexpected(at(field.name), self._expected(), f"only {names}")
        length = _characters(example)
        if length > limits.characters:
            raise unexpected(
                place or "the request", f"at most {limits.characters} characters", length
            )
        example = self._cut(example, _MAX_GROWTH * limits.characters, place)
        return self.optional | example

    def _cut(self, example: dict[str, Any], limit: int, place: str) -> dict[str, Any]:
        """Truncates the texts of an example that would take long to normalize.

        `limit`: maximum number of characters of all texts after that.
        """
        texts = list(texts_of(example))
        if sum(len(text) if text.isascii() else sum(_lengths(text)) for text in texts) <= limit:
            return example
        if self.is_split:
            raise unexpected(
                place or "the request",
                f"at most {limit} characters after normalization (NFKD)",
                "more",
            )
        return _map_texts(lambda text: _start(text, limit // len(texts)), example)

    def _expected(self) -> str:
        names = [
            f"{field.name} (or {field.other_name})" if field.other_name else field.name
            for field in self.required
        ]
        more = f", perhaps {' and '.join(self.optional)}" if self.optional else ""
        return f"{'the fields' if len(names) > 1 else 'the field'} {', '.join(names)}{more}"


def texts_of(value: object) -> Iterator[str]:
    """Yields all texts in the fields of an example."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from texts_of(part)


def _map_texts(function: Callable[[str], str], value: Any) -> Any:
    if isinstance(value, str):
        return function(value)
    if isinstance(value, list):
        return [_map_texts(function, part) for part in value]
    if isinstance(value, dict):
        return {name: _map_texts(function, part) for name, part in value.items()}
    return value


def _lengths(text: str) -> Iterator[int]:
    """Yields how many characters each character of a text decomposes into."""
    lengths = {character: len(unicodedata.normalize("NFKD", character)) for character in set(text)}
    return (lengths[character] for character in text)


def _start(text: str, limit: int) -> str:
    """Returns the longest start of a text that decomposes into at most `limit` characters."""
    return text[: sum(end <= limit for end in itertools.accumulate(_lengths(text)))]


def _characters(value: Any) -> int:
    return sum(map(len, texts_of(value)))


_WORDS = Field(
    "words",
    ["Ann", "lives", "in", "Paris"],
    _words,
    {
        "oneOf": [{"type": "array", "items": _TEXT_SCHEMA, "minItems": 1}, _TEXT_SCHEMA],
        "description": "Words, or a text that is split at white space.",
    },
    is_long=True,
    other_name="text",
)
_OPTIONS = Field(
    "options",
    ["inside", "outside", "at school", "in a tent"],
    _options,
    {"type": "array", "items": _TEXT_SCHEMA, "minItems": 2, "maxItems": _MAX_OPTIONS},
)
_NUM_ANSWERS = Field(
    "num_answers",
    _DEFAULT_ANSWERS,
    _count,
    {"type": "integer", "minimum": 1, "maximum": MAX_ANSWERS},
    default=_DEFAULT_ANSWERS,
)
_TEXT = Field("text", "What a charming journey.", is_long=True)
_MASKED_TEXT = Field(
    "text",
    "The capital of France is [MASK].",
    _masked,
    {"type": "string", "pattern": r"\[MASK\]"},
    is_long=True,
    needs=_MASK,
)

ONE_TEXT = RequestSchema("/predict", (_TEXT,))
TWO_TEXTS = RequestSchema("/predict", (_TEXT, Field("text_pair", "It was dull.")))
WORDS = RequestSchema("/predict", (_WORDS,), is_split=True)
CHOICE = RequestSchema(
    "/predict",
    (
        Field("article", "It rained all day, so we stayed inside.", is_long=True),
        Field("question", "Where did we stay?"),
        _OPTIONS,
    ),
)
MASKED = RequestSchema("/predict", (_MASKED_TEXT, _NUM_ANSWERS))
QUESTION = RequestSchema(
    "/ask",
    (
        Field("question", "Who wrote it?"),
        Field("context", "Ann wrote it in 1901.", is_long=True),
        _NUM_ANSWERS,
    ),
    is_split=True,
)


def length_of(tokens: int | None) -> int | None:
    """Returns the length of tokens in the unit of `measured`."""
    return None if tokens is None else tokens * _TOKEN_CHARACTERS


@dataclasses.dataclass(frozen=True)
class Ids:
    """Sequences of a request as ids instead of texts."""

    features: dict[str, Any]  # int32 [batch, sequence] by name, the inputs of the model's file


def measured(
    form: RequestSchema, example: dict[str, Any] | Ids, max_seq_length: int
) -> batcher.Row:
    """Returns the `batcher.Row` of an example, with its length in characters."""
    if isinstance(example, Ids):
        batch, length = example.features["input_ids"].shape
        return batcher.Row(example, length * _TOKEN_CHARACTERS, batch)
    longest = _TOKEN_CHARACTERS * max_seq_length
    length = _characters(example)
    sequences = len(example.get("options", [None]))
    if form.is_split:
        sequences = -(-length // longest)
    return batcher.Row(example, max(min(length, longest), _MIN_LENGTH), sequences)


# --- requests and replies -----------------------------------------------------------------------


Result = dict[str, Any]  # of an example, ready for JSON; of `Ids` arrays by name
Example = dict[str, Any] | Ids  # a dict as `RequestSchema.read` makes it


@dataclasses.dataclass(frozen=True)
class Reply:
    """The body of a reply and its headers."""

    body: bytes
    headers: Mapping[str, str]


def json_reply(value: Any) -> Reply:
    """Returns a reply in JSON."""
    return Reply(to_json(value).encode(), {"Content-Type": "application/json; charset=utf-8"})


class Request(Protocol):
    """A decoded request."""

    @property
    def examples(self) -> Sequence[Example]:
        """The examples to answer; ids are alone."""

    def encode(self, results: Sequence[Result]) -> Reply:
        """Returns the reply with the results of the examples, in their order."""


@dataclasses.dataclass(frozen=True)
class OwnRequest:
    """A request in the toolkit's own format, with one example or a list."""

    examples: list[dict[str, Any]]
    is_list: bool

    def encode(self, results: Sequence[Result]) -> Reply:
        """Returns the reply: the result, or a list of results."""
        return json_reply({"results": results} if self.is_list else results[0])


def parse(body: bytes) -> Any:
    """Parses JSON in UTF-8; raises `file_io.InputError` if the bytes are anything else."""
    try:
        return file_io.parse_json(body.decode())
    except UnicodeDecodeError as error:
        raise unexpected("the request", "JSON in UTF-8", error) from error
    except file_io.InputError as error:
        raise file_io.InputError(f"the request: not valid JSON: {error}") from error


def read_all(
    values: object, name: str, form: RequestSchema, limits: Limits, in_columns: bool = False
) -> list[dict]:
    """Reads a list of examples, see `RequestSchema.read`.

    Args:
      name: name of the list in messages.
      in_columns: whether the request has a list for each field.
    """
    json_shapes.check(values, list, name)
    assert isinstance(values, list)
    if not 1 <= len(values) <= limits.examples:
        raise unexpected(name, f"1 to {limits.examples} examples", len(values))
    return [
        form.read(value, f"{name}[{i}]", limits, (name, i) if in_columns else None)
        for i, value in enumerate(values)
    ]


def read(body: bytes, form: RequestSchema, limits: Limits) -> OwnRequest:
    """Reads a request in the toolkit's own format; see `RequestSchema.read`."""
    value = parse(body)
    json_shapes.check(value, dict, "the request")
    if _EXAMPLES not in value:
        return OwnRequest([form.read(value, "", limits)], is_list=False)
    if len(value) > 1:
        raise unexpected("the request", f"only {_EXAMPLES}", ", ".join(value))
    examples = read_all(value[_EXAMPLES], _EXAMPLES, form, limits)
    return OwnRequest(examples, is_list=True)


def to_json(value: Any) -> str:
    """Returns a line of JSON; raises ValueError for numbers that JSON lacks."""
    return json.dumps(value, allow_nan=False) + "\n"
