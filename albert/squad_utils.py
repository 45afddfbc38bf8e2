"""SQuAD under the name users import; the work is done in `albert.tasks.squad.answers`.

Examples:
    >>> from albert import squad_utils, tokenization
    >>> tokenizer = tokenization.FullTokenizer("albert/pretrained/albert_mini/vocab.txt")
    >>> question = squad_utils.SquadExample("1", "Who wrote it?", "Ann wrote it in 1901.")
    >>> windows = squad_utils.convert_examples_to_features(
    ...     [question], tokenizer, max_seq_length=32, doc_stride=16, max_query_length=8,
    ...     is_training=False, do_lower_case=True,
    ... )
    >>> len(list(windows))
    1
"""

from albert.io.file_io import InputError
from albert.tasks.squad.answers import (
    NO_LOGIT,
    NO_WINDOW_NULL_ODDS,
    TRAINING_SHUFFLE_SEED,
    WINDOWS_AT_A_TIME,
    Answer,
    answers_known,
    best_answers_v1,
    best_answers_v2,
    find_null_odds,
    predictions_v1,
    predictions_v2,
    read_squad_examples,
    scores_of,
    shuffle_examples,
    write_predictions,
)
from albert.tasks.squad.features import (
    FeatureReport,
    SquadExample,
    SquadFeatures,
    convert_examples_to_features,
)

__all__ = [
    "Answer",
    "FeatureReport",
    "InputError",
    "NO_LOGIT",
    "NO_WINDOW_NULL_ODDS",
    "SquadExample",
    "SquadFeatures",
    "TRAINING_SHUFFLE_SEED",
    "WINDOWS_AT_A_TIME",
    "answers_known",
    "best_answers_v1",
    "best_answers_v2",
    "convert_examples_to_features",
    "find_null_odds",
    "predictions_v1",
    "predictions_v2",
    "read_squad_examples",
    "scores_of",
    "shuffle_examples",
    "write_predictions",
]
