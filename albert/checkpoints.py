"""Checkpoints under the name users import; the work is done in `albert.model.checkpoints`.

Examples:
    >>> from albert import checkpoints, modeling
    >>> folder = "albert/pretrained/albert_mini"
    >>> config = modeling.AlbertConfig.from_json_file(f"{folder}/config.json")
    >>> model = modeling.AlbertModel(config)
    >>> "bert/embeddings/word_embeddings" in checkpoints.restore(model, folder).loaded
    True
"""

from albert.io import requirements

with requirements.explained():
    from albert.model.checkpoints import (
        BEST,
        NEW_BEST,
        READ_ERRORS,
        LoadReport,
        clean_up,
        complete_best,
        copy,
        delete,
        find_best,
        group_zero_name,
        numbered,
        prefix_exists,
        prune,
        read_step,
        read_tensors,
        reader,
        replace_best,
        resolve,
        restore,
        restore_training_state,
        save,
        step_of,
        update_pointer,
        values_of,
        variables_by_name,
        without_index,
        write_tensors,
    )
    from albert.model.weight_names import ENCODER_PREFIX

__all__ = [
    "BEST",
    "ENCODER_PREFIX",
    "LoadReport",
    "NEW_BEST",
    "READ_ERRORS",
    "clean_up",
    "complete_best",
    "copy",
    "delete",
    "find_best",
    "group_zero_name",
    "numbered",
    "prefix_exists",
    "prune",
    "read_step",
    "read_tensors",
    "reader",
    "replace_best",
    "resolve",
    "restore",
    "restore_training_state",
    "save",
    "step_of",
    "update_pointer",
    "values_of",
    "variables_by_name",
    "without_index",
    "write_tensors",
]
