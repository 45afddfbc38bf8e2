"""SQuAD under the name users import; the work is done in `albert.tasks.squad.answers`."""

from albert.io.file_io import (
    InputError,
)
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
