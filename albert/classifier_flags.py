"""Flags that say which data a classifier is trained on: a GLUE task, or one's own files."""

from absl import flags

from albert import common_flags


def define_own_data_flags(flag_values):
    """Files and columns of one's own data."""
    text, *_ = common_flags.definers(flag_values)
    text("train_file", None, "Own data to train on (.csv, .tsv or .jsonl), for custom.")
    text("validation_file", None, "Own data to evaluate on, for custom.")
    text("test_file", None, "Own data to predict, with or without labels, for custom.")
    text("text_column", "text", "Column of the text in one's own data.")
    text("text_pair_column", None, "Column of the second text in one's own data, if there is one.")
    text("label_column", "label", "Column of the label in one's own data.")
    text("id_column", None, "Column of the id in one's own data; by default rows are numbered.")
    flags.DEFINE_enum(
        "label_type",
        None,
        ["classification", "regression"],
        "What the labels of one's own data are; by default regression if all are numbers and one "
        "has a decimal point.",
        flag_values=flag_values,
    )


def find_row(values):
    """The task of the flags.

    Returns:
      `classifier_utils.GlueTask`, or `custom_data.CustomTask` on one's own files.

    Raises:
      file_io.InputError: no such task, or flags of the other kind are given.
    """
    from albert import classifier_utils, custom_data, tables

    own = ("train_file", "validation_file", "test_file", "text_pair_column", "id_column")
    if values.task_name.lower() != custom_data.NAME:
        common_flags.require_given(values, "data_dir")
        common_flags.refuse_given(values, "--task_name=custom", *own, "label_type")
        return classifier_utils.get_task(values.task_name)
    common_flags.refuse_given(values, "GLUE tasks", "data_dir")
    columns = tables.Columns(
        values.text_column, values.text_pair_column, values.label_column, values.id_column
    )
    files = {"train": values.train_file, "dev": values.validation_file, "test": values.test_file}
    return custom_data.find_task(files, columns, values.output_dir, values.label_type)
