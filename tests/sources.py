"""The modules of the package and their layers, for the tests that look at sources."""

import ast
import functools
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "albert"
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")

# Bottom to top; imports point down or stay inside a layer. A new module gets its place here.
PLAIN = """
    file_io archives answer_text progress optimizer_table wordpiece tokenization packing masking
    request_batches serving_requests serving_metrics
    metrics results tables compressed_files word_hashes near_duplicates contamination
    disk_space
    corpus_cleaning corpus_preparation line_sample corpus demo_data tfrecord bucket_shuffle
    mixtures sequence_formats compact_records pretraining_data worker_processes
    pretraining_files pretraining_shards beam_pipelines beam_records beam_lines record_reading
    record_description squad_spans squad_metrics squad_features squad_records weight_names
    huggingface blimp entities word_files provenance run_record reproduction model_card
    file_sums folder_lock signals checkpoint_manifest export_manifest stuck restarts seeds
    budget json_shapes sweep_plan sweep_journal sweep_results sweep_search sweep_runner
    report_html report_charts
    onnx_graph quantization
""".split()
# What scripts share.
SHARED_FLAGS = """
    command_line common_flags distillation_flags dropout_flags optimizer_flags pretraining_flags
    squad_flags blimp_flags fine_tuning_flags record_flags schedule_flags study_flags script_flags
    pretraining_data_flags runner_flags
    inference_flags
""".split()
LAYERS = {
    "plain": PLAIN,
    "TF parts": [
        *"kernels batching layers configuration modeling memory".split(),
        *"optimization lamb_optimizer adam_optimizer record_files records distribution tpu".split(),
        *"run_config training_log checkpoints checkpoint_writer checkpoint_health".split(),
        *"saved_model_files graph_tokenizer learning_signs".split(),
    ],
    "engine": "train_step engine checkpoint_walk".split(),
    "assembly": [
        *"head_parts pretraining_heads heads".split(),
        *"pretrained model_folder pretraining_folder task distillation".split(),
        *"frozen_encoder encoder_cache subsets ready_model".split(),
    ],
    "tasks": [
        *"pretraining_masks pretraining_task classifier_utils custom_data race_utils".split(),
        *"squad_utils squad_task token_classification squad_positions".split(),
        *"squad_selection squad_threshold".split(),
    ],
    "uses": [
        *"stages predictors feature_extractor pseudo_likelihood".split(),
        *"token_predictor token_exporter choice_predictor serving_folder".split(),
        *"serving_runtimes inference agreement onnx_exporter onnx_quantizer".split(),
        "serving_exporter",
        *"exported_model litert_exporter saved_model_exporter saved_model_runtime".split(),
        "choice_exporter",
        *"export hub_exporter huggingface_exporter verification training glue_table".split(),
        *"report_data report_predictions report_pages".split(),
        *"served_model http_server".split(),
    ],
    "scripts": [
        *SHARED_FLAGS,
        *"run_pretraining run_classifier run_squad_v1 run_squad_v2 run_race".split(),
        *"ask predict run_blimp run_token_classifier serve".split(),
        *"create_pretraining_data train_vocab export_checkpoints export_to_tfhub".split(),
        *"prepare_corpus describe_records".split(),
        *"export_to_huggingface extract_features make_demo_data glue_report".split(),
        *"reproduce verify run_sweep report export_serving".split(),
    ],
}
FLAG_MODULES = set(SHARED_FLAGS)
SCRIPTS = [n for n in LAYERS["scripts"] if n in MODULES and n not in FLAG_MODULES]


@functools.cache
def tree_of(name):
    """Syntax tree of a module of the package."""
    return ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))
