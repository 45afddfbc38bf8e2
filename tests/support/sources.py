"""The modules of the package and their rooms, for the tests that look at sources."""

import ast
import functools
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "albert"
ROOMS = "io text model data training tasks serving export experiments cli".split()
# Names of the reference, and two of the public API, that only import what is in the rooms.
DOORS = """
    modeling optimization lamb_optimizer tokenization classifier_utils squad_utils race_utils
    heads checkpoints
""".split()
COMMANDS = sorted(
    path.stem for path in PACKAGE.glob("*.py") if path.stem not in ("__init__", "__main__", *DOORS)
)
# Dotted below the package, such as "io.file_io".
MODULES = COMMANDS + sorted(
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for path in PACKAGE.glob("*/**/*.py")
    if path.stem != "__init__"
)
# Modules of rooms with TensorFlow that must be imported without it: workers that make data, the
# checks of flags, servers of ONNX models and reports start with them. Those of `tasks` and
# `serving` import it, or modules with it, where a function trains or restores a model.
PLAIN = """
    model.batching model.configuration model.decision model.head_config model.hub_modules
    model.huggingface model.label_scale model.model_folder model.pooling model.sources
    model.weight_matching model.weight_names
    data.beam_runner data.input_options data.inspection data.instance_files data.instance_shards
    data.instances
    data.masking data.sentence_pairs data.sequence_formats data.shuffling data.tfrecord
    training.budget training.contracts training.optimizer_table training.results
    training.run_facts training.run_record training.run_session training.stuck_runs
    training.subsets
    tasks.class_weights tasks.custom tasks.entities tasks.example_data tasks.glue tasks.kinds
    tasks.label_set_scores tasks.label_sets tasks.metrics tasks.model_labels tasks.multi_label
    tasks.outcomes tasks.prediction_files tasks.race
    tasks.squad.answer_features tasks.squad.answers
    tasks.squad.features tasks.squad.metrics tasks.squad.null_threshold tasks.squad.outcomes
    tasks.squad.positions tasks.squad.question_files
    tasks.squad.records tasks.squad.selection tasks.squad.spans tasks.squad.task
    tasks.token_classification tasks.word_files
    serving.answer_text serving.batcher serving.choice_predictor serving.example_requests
    serving.hosted_models
    serving.inference serving.inference_protocol serving.multi_label_predictor serving.openapi
    serving.predictor
    serving.predictors serving.question_predictor serving.requests serving.runtimes
    serving.served_model serving.server_log serving.serving_folder serving.tensorflow_protocol
    serving.tensors serving.text_predictor serving.token_predictor
    export.agreement export.onnx_graph
    experiments.blimp experiments.charts experiments.comparison experiments.comparison_sides
    experiments.comparison_text experiments.demo_data
    experiments.example_statistics experiments.exported_runs experiments.glue_table
    experiments.main_effects
    experiments.model_card experiments.older_predictions experiments.power
    experiments.predictions experiments.report
    experiments.report_cells experiments.report_curves
    experiments.report_groups experiments.report_predictions experiments.report_sweeps
    experiments.reproduction experiments.runs experiments.seed_runs experiments.statistics
    experiments.sweep
    experiments.sweep_comparison
    experiments.sweep_journal experiments.sweep_plan
    experiments.sweep_results experiments.sweep_search
    experiments.text_tables experiments.trackers experiments.trial_processes
""".split()


def room_of(name):
    """The room of a module; "" for a command."""
    return name.split(".")[0] if "." in name else ""


PLAIN_MODULES = [
    name for name in MODULES if room_of(name) in ("", "io", "text", "cli") or name in PLAIN
]


@functools.cache
def parsed(path):
    """Syntax tree of a file, which several tests walk through."""
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes(path):
    """All nodes of a file's syntax tree, listed once: to find them takes longer than a check."""
    return list(ast.walk(parsed(path)))


def tree_of(name):
    """Syntax tree of a module of the package."""
    return parsed(path_of(name))


def nodes_of(name):
    """All nodes of a module of the package."""
    return nodes(path_of(name))


def path_of(name):
    """File of a module of the package."""
    return PACKAGE.joinpath(*name.split(".")).with_suffix(".py")
