"""Checks the values of records: tokens beyond the vocabulary, labels beyond the classes.

Each batch is checked when it is read, which takes a few comparisons. Only if a batch is rejected
are the files read again, to find the record.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from albert.data import input_pipeline, record_files
from albert.data.input_options import Tensors
from albert.data.tfrecord import FeatureSpec
from albert.io import file_io
from albert.model import configuration

WRONG = "a record holds an invalid value"
_SCANNED_AT_ONCE = 1024  # records


def limits_of_model(config: configuration.AlbertConfig) -> dict[str, int]:
    """Returns {name of a feature: number below which its values must be}."""
    return {"input_ids": config.vocab_size, "segment_ids": config.segment_limit, "input_mask": 2}


def find_wrong(features: Tensors, limits: Mapping[str, int | tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns {name: booleans}, True for each invalid value.

    Args:
      limits: {name: number or tensor}; integers must be at least 0 and below it. Features without
        a limit may have any integers. All floats must be finite.
    """
    errors = {
        name: (features[name] < 0) | (features[name] >= high)
        for name, high in limits.items()
        if name in features and features[name].dtype.is_integer
    }
    floats = {name: values for name, values in features.items() if values.dtype.is_floating}
    return {**errors, **{name: ~tf.math.is_finite(values) for name, values in floats.items()}}


def refuse(wrong: Tensors) -> tf.Operation | None:
    """Makes the operation that fails, with `WRONG`, if a boolean of `find_wrong` is True."""
    is_wrong = tf.reduce_any([tf.reduce_any(values) for values in wrong.values()])
    return tf.debugging.Assert(~is_wrong, [WRONG])


def check(features: Tensors, limits: Mapping[str, int]) -> dict[str, tf.Tensor]:
    """Returns the features of a batch, after a check of their values, see `refuse`."""
    with tf.control_dependencies([refuse(find_wrong(features, limits))]):
        return {name: tf.identity(values) for name, values in features.items()}


@contextlib.contextmanager
def report_damage(paths: Sequence[str], finders: Mapping[str, Callable[[], str]]) -> Iterator[None]:
    """As `record_files.report_damage`, also for what is rejected because of a record's values.

    Args:
      finders: {part of TensorFlow's message: function that returns the message for the user}.
    """
    with record_files.report_damage(paths):
        try:
            yield
        except tf.errors.InvalidArgumentError as error:
            for reason, find in finders.items():
                if reason in error.message:
                    logging.info("%s; looking for it", reason.capitalize())
                    raise file_io.InputError(find()) from error
            raise


def find_wrong_record(
    paths: Sequence[str],
    specs: Sequence[FeatureSpec],
    find: Callable[[Tensors], Tensors],
    describe: Callable[[str, tuple[int, ...], dict[str, np.ndarray]], str],
) -> str:
    """Describes the first record with an invalid value: file, number, value.

    Args:
      specs: feature specifications; a file need not have all of the features.
      find: as `find_wrong`, of features alone.
      describe: ``(name, place, features) -> text`` of a value and its record (arrays).
    """
    for path in paths:
        example = record_files.first_example(path)
        present = example.features.feature if example else ()
        file_specs = [spec for spec in specs if spec.name in present]
        dataset = record_files.serialized_examples([path]).batch(_SCANNED_AT_ONCE)
        for batch, serialized in enumerate(dataset):
            features = input_pipeline.parse(file_specs, serialized, narrow=False)
            errors = {name: np.argwhere(values) for name, values in find(features).items()}
            errors = {name: places[0] for name, places in errors.items() if len(places)}
            if errors:
                name = min(errors, key=lambda name: errors[name][0])
                row, *place = (int(index) for index in errors[name])
                record = {name: values[row].numpy() for name, values in features.items()}
                text = describe(name, tuple(place), record)
                return f"{path}, record {batch * _SCANNED_AT_ONCE + row + 1}: {text}"
    return f"{WRONG}, in {', '.join(paths)}"


def describe_value(
    name: str, place: Sequence[int], value: np.generic | int, high: int | None
) -> str:
    """Returns a message on a value that is not below `high`, or not finite."""
    is_float = isinstance(value, np.floating)
    expected = "a finite number" if is_float or high is None else f"0 to {high - 1}"
    where = "".join(f"[{index}]" for index in place)
    return f"{name}{where} = {value}, expected {expected}"


def report_damage_of_cache(
    paths: Sequence[str], specs: Sequence[FeatureSpec], limits: Mapping[str, int]
) -> contextlib.AbstractContextManager[None]:
    """As `report_damage`, for files of features that can be made again."""
    find = functools.partial(find_wrong, limits=limits)

    def describe(name: str, place: tuple[int, ...], features: dict[str, np.ndarray]) -> str:
        text = describe_value(name, place, features[name][place], limits.get(name))
        return f"{text}: delete the file, then the same command makes it again"

    return report_damage(paths, {WRONG: lambda: find_wrong_record(paths, specs, find, describe)})
