"""Settings of pre-training and of its records, and the parts of a pre-training run."""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from absl import logging

from albert.cli import distillation, model_settings, options, path_flags, training
from albert.data import masking
from albert.io import file_io
from albert.model import configuration, model_folder, sources
from albert.text import tokenization
from albert.training import contracts

if TYPE_CHECKING:
    import tensorflow as tf

    from albert.data import dynamic_masking


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masks(options.Group):
    """Flags for the number and the choice of masked tokens."""

    section = options.DATA

    max_predictions_per_seq: int = options.count(
        20,
        "Maximum number of masked tokens in an instance; records that hold masks fit only the "
        "value that they were made with.",
    )
    masked_lm_prob: float = options.flag(
        0.15, "Fraction of the tokens to mask, where masks are drawn.", check=options.unit_interval
    )
    ngram: int = options.count(3, "Longest run of words masked together, where masks are drawn.")
    favor_shorter_ngram: bool = options.flag(
        True,
        "Where masks are drawn, runs of n words have a probability in proportion to 1/n; if false "
        "the longest run has the highest.",
    )
    do_whole_word_mask: bool = options.flag(
        True, "Where masks are drawn, mask all pieces of a word or none."
    )
    do_permutation: bool = options.flag(
        False,
        "Where masks are drawn, also choose the same number of tokens that are not masked, permute "
        "and predict them.",
    )

    def config(self) -> masking.MaskingConfig:
        """Returns the rules by which masks are drawn."""
        return masking.MaskingConfig(
            self.max_predictions_per_seq,
            self.masked_lm_prob,
            self.ngram,
            self.favor_shorter_ngram,
            self.do_whole_word_mask,
            self.do_permutation,
        )

    def given_rules(self) -> list[str]:
        """Returns the given flags that only affect how masks are drawn, with dashes."""
        names = ("masked_lm_prob", "ngram", "favor_shorter_ngram", "do_whole_word_mask")
        return [f"--{name}" for name in (*names, "do_permutation") if name in self.given]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blimp(options.Group):
    """Flags for BLiMP scores of each pre-training checkpoint."""

    section = options.EVALUATION

    blimp_data_dir: str | None = options.flag(
        None,
        "With --do_eval: also measure on the files of BLiMP in this folder.",
        path=path_flags.FOLDER,
    )
    blimp_limit: int | None = options.flag(
        None,
        "Maximum number of pairs of each BLiMP paradigm, from the front; by default all.",
        minimum=1,
    )

    def check(self, do_eval: bool) -> None:
        """Rejects flags without effect; `do_eval`: the run evaluates."""
        if self.blimp_data_dir and not do_eval:
            raise file_io.InputError("--blimp_data_dir needs --do_eval")
        if not self.blimp_data_dir:
            self.refuse_given("--blimp_data_dir", "blimp_limit")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFiles(model_settings.ModelFiles):
    """Flags for the initial model and the vocabulary of the records."""

    albert_config_file: str | None = options.flag(
        None, "JSON file of the model's sizes.", path=path_flags.INPUT
    )
    init_checkpoint: str | None = options.flag(
        None,
        "Weights to start from: a checkpoint, a folder, or the name of a published model, such as "
        "albert_base_v2; by default random ones.",
        path=path_flags.MODEL,
    )
    albert_hub_module_handle: str | None = options.flag(
        None, "Hub module to start from: a folder, .tar.gz or URL.", path=path_flags.FOLDER
    )
    spm_model_file: str | None = options.flag(
        None,
        "SentencePiece model of the records, to draw masks; kept in --output_dir.",
        path=path_flags.INPUT,
    )
    vocab_file: str | None = options.flag(
        None,
        "WordPiece vocabulary of the records, to draw masks; kept in --output_dir.",
        path=path_flags.INPUT,
    )
    do_lower_case: bool = options.flag(
        True,
        "Whether the texts of the records were lower-cased: recorded in --output_dir, and done to "
        "the sentences of BLiMP.",
    )
    keep_accents: bool = options.flag(
        False,
        "Whether the texts of the records kept their accents: recorded in --output_dir, and so for "
        "the sentences of BLiMP.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(training.Settings):
    """Settings of `run_pretraining`."""

    input_file: str = options.flag(
        None,
        "Records to train on: comma-separated globs, or globs with weights.",
        required=True,
        path=path_flags.INPUTS,
    )
    eval_input_file: str | None = options.flag(
        None, "Records to evaluate on; by default --input_file.", path=path_flags.INPUTS
    )
    init_from_group0: bool = options.flag(
        False, "Give every group of layers the weights of group 0."
    )
    do_train: bool = options.flag(True, "Train.")
    do_eval: bool = options.flag(
        False, "Evaluate: each checkpoint as it is saved, or all existing ones."
    )
    max_seq_length: int = options.count(512, "Tokens per example, as the records were made.")
    train_batch_size: int = options.count(4096, "Examples per step, over all devices.")
    train_batch_tokens: int = options.flag(
        0,
        "Above 0: real tokens per step, in place of --train_batch_size; batches of shorter "
        "examples hold more of them. Only for runs on one device.",
    )
    group_by_length: bool = options.flag(
        False,
        "With --train_batch_tokens: fill each batch with examples of similar length, which is "
        "faster.",
    )
    eval_batch_size: int = options.count(64, "Examples per evaluation step, over all devices.")
    sentence_task: str = options.flag(
        "sop",
        "What the model learns of two texts in addition to masked words: their order, whether one "
        "follows the other, or nothing.",
        shown_default="sop; for --do_eval alone what the model has learned",
        choices=("sop", "nsp", "none"),
    )
    poly_power: float = options.flag(
        1.0, "Power of the polynomial decay of the learning rate to 0.", check=options.not_negative
    )
    num_train_steps: int = options.count(125000, "Total number of steps.")
    num_warmup_steps: int = options.flag(3125, "Steps over which the learning rate rises from 0.")
    start_warmup_step: int = options.flag(
        0,
        "Step at which the warm-up starts; only for a run that resumes from this step, as the rate "
        "is below 0 before it.",
    )
    average_last: float = options.flag(
        0.0,
        "Above 0: also average the weights over this last fraction of the steps, and save them as "
        "model.ckpt-average.",
        check=options.unit_interval,
    )
    save_checkpoints_steps: int = options.count(5000, "Steps between checkpoints.")
    keep_checkpoint_max: int = options.flag(
        5, "Checkpoints kept in addition to the best; 0 keeps all.", check=options.not_negative
    )
    max_eval_steps: int = options.count(100, "Maximum batches per evaluation.")
    masked_lm_budget: float = options.flag(
        0.0,
        "Above 0: fraction of the tokens to mask, drawn again at every step, in records that "
        "already have masks.",
        check=options.fraction,
    )
    distill_unmasked: float = options.flag(
        0.0,
        "With --teacher: fraction of the examples that are not masked; they teach the hidden "
        "states of texts as fine-tuning reads them, and no masked words.",
        check=options.fraction,
    )
    model: ModelFiles = options.group(ModelFiles)
    optimizer: training.Optimizer = options.group(
        training.Optimizer, optimizer="lamb", learning_rate=0.00176
    )
    masks: Masks = options.group(Masks)
    blimp: Blimp = options.group(Blimp)
    teacher: distillation.Teacher = options.group(distillation.Teacher)

    def check(self) -> None:
        if not self.do_train and not self.do_eval:
            raise file_io.InputError("nothing to do: neither --do_train nor --do_eval")
        if self.do_train:
            self.loop.refuse_given("--do_eval alone", "checkpoint")
        self.loop.check_waiting(self.do_train, self.do_eval)
        self.optimizer.check()
        self.blimp.check(self.do_eval)
        self.teacher.check(self)
        if self.distill_unmasked and not (self.teacher.teacher and any(self.teacher.weights[2:])):
            raise file_io.InputError(
                f"--distill_unmasked={self.distill_unmasked}: examples without masks teach hidden "
                "states; give --teacher, and a weight for these, as in "
                "--distill_weights=0,0.1,0,1,1"
            )
        if self.teacher.init_from_teacher:
            self.refuse_given(distillation.WITHOUT_WEIGHTS, "init_from_group0")
        self.schedule.check(self.do_train, self.do_eval)
        if not self.do_train:
            self.refuse_given("training", "average_last")
        if not self.do_eval:
            self.refuse_given("--do_eval", "eval_input_file")
        if self.schedule.budget_minutes:
            self.refuse_given("runs without --budget_minutes", "start_warmup_step")
        if self.init_from_group0 and not (
            self.model.init_checkpoint or self.model.albert_hub_module_handle
        ):
            raise file_io.InputError("--init_from_group0 needs --init_checkpoint")


# --- masks ----------------------------------------------------------------------------------------


def _reject_unused_rules(
    settings: Settings, files: Mapping[str, "dynamic_masking.RecordFiles"]
) -> None:
    """Rejects masking flags that have no effect with these records, {"train": …, "dev": …}."""
    budget, rules = settings.masked_lm_budget, settings.masks.given_rules()
    rules += ["--distill_unmasked"] if settings.distill_unmasked else []
    train = files["train"]
    if budget and train.without_masks:
        raise file_io.InputError(
            f"--masked_lm_budget={budget} draws new masks for records that have some; those of "
            f"{train.paths[0]} have none: give --masked_lm_prob={budget} instead"
        )
    if budget:
        rules = [name for name in rules if name in ("--masked_lm_prob", "--do_permutation")]
        if rules:
            raise file_io.InputError(
                f"{', '.join(rules)} cannot be combined with --masked_lm_budget={budget}, which "
                "says how much is masked and fills the places that the records have"
            )
    elif rules and not any(records.without_masks for records in files.values()):
        raise file_io.InputError(
            f"{', '.join(rules)}: {train.paths[0]} holds records with masks, which are used as "
            "they are; make them with --mask_in_training (create_pretraining_data), or give "
            "--masked_lm_budget"
        )


def find_masker(
    settings: Settings, files: dict[str, "dynamic_masking.RecordFiles"], vocab_size: int
) -> "dynamic_masking.Masker | None":
    """Returns what draws masks; None if the masks of the records are kept.

    Args:
      files: {"train": …, "dev": …}, the records of each split.
    """
    from albert.data import dynamic_masking

    _reject_unused_rules(settings, files)
    lacking = [path for records in files.values() for path in records.fingerprints]
    if not (settings.masked_lm_budget or lacking):
        return None
    config = settings.masks.config()
    if settings.masked_lm_budget:
        config = dataclasses.replace(config, masked_lm_prob=settings.masked_lm_budget)
    if warning := masking.limit_warning(config, settings.max_seq_length):
        remade = "" if lacking else ", in records that are made again with it"
        logging.warning("%s%s", warning, remade)
    without_masks = f"{lacking[0]} holds records without masks; masking" if lacking else ""
    source = _find_vocabulary(settings, without_masks or "--masked_lm_budget")
    tokenizer = tokenization.FullTokenizer(
        source.vocab_file, spm_model_file=source.spm_model_file, rules=source.rules
    )
    tokenization.check_vocab_size(tokenizer, vocab_size)
    return dynamic_masking.make_masker(
        config, files, tokenizer, settings.loop.seed, settings.distill_unmasked
    )


def _find_vocabulary(settings: Settings, purpose: str) -> sources.Source:
    """Returns the model of the flags; messages say for what `purpose` its vocabulary is needed."""
    try:
        return settings.model.find()
    except file_io.InputError as error:
        text = f"{purpose} needs the vocabulary of the records: {error}"
        raise file_io.InputError(text) from error


def find_source(settings: Settings) -> sources.Source:
    """Returns the initial model; if it has no vocabulary, with that of the output folder."""
    source, folder = settings.model.find(needs_vocabulary=False), settings.output_dir
    paths = sources.vocabularies_in(folder) if file_io.is_dir(folder) else []
    if source.vocabulary or len(paths) != 1:
        return source
    kind = "spm_model_file" if paths[0].endswith(".model") else "vocab_file"
    rules = sources.rules_beside(paths[0], settings.model.text_rules())
    return dataclasses.replace(source, **{kind: paths[0]}, rules=rules)


def check_records(
    data: contracts.Data,
    source: sources.Source,
    config: configuration.AlbertConfig,
    sentence_task: str,
) -> None:
    """Rejects records whose manifests name another vocabulary or sentence task than the run has."""
    from albert.data import instance_shards

    files = dict.fromkeys([*data.files("train"), *data.files("dev")])
    if source.vocabulary:
        tokenizer = model_folder.load_tokenizer(source, config)
        is_sentencepiece = tokenizer.sp_model is not None
        instance_shards.check_vocabulary(files, source.vocabulary, source.rules, is_sentencepiece)
    if sentence_task != "none":
        instance_shards.check_sentence_task(files, sentence_task)


def check_held_out(train: Iterable[str], held_out: Iterable[str]) -> None:
    """Rejects records to evaluate on that are also trained on, by any name."""
    identities = {file_io.identity(path) for path in train}
    for path in held_out:
        if file_io.identity(path) in identities:
            raise file_io.InputError(
                f"--eval_input_file: {path} is also a file of --input_file; name it in one of "
                "them, or omit --eval_input_file to evaluate on the records of the training"
            )


def warn_of_untrained_types(
    files: dict[str, "dynamic_masking.RecordFiles"],
    config: configuration.AlbertConfig,
    sentence_labels: bool,
) -> None:
    """Warns if the records have no second texts, but the model has a use for them.

    Args:
      files: {"train": …, "dev": …}, the records of each split.
      sentence_labels: whether the model learns a sentence task.
    """
    if files["train"].has_second_texts:
        return
    if sentence_labels:
        logging.warning(
            "%s: its inputs have no second text, so there is no sentence task to learn; give "
            "--sentence_task=none",
            files["train"].paths[0],
        )
    if config.type_vocab_size > 1:
        logging.warning(
            "%s: its inputs have no second text, so only one of %d token types is trained, and "
            "fine-tuning on pairs of texts would start with a random one; set type_vocab_size to 1 "
            "in the configuration of a new model",
            files["train"].paths[0], config.type_vocab_size,
        )  # fmt: skip


# --- the sentence task ----------------------------------------------------------------------------


def find_sentence_tasks(settings: Settings, strategy: "tf.distribute.Strategy") -> tuple[str, str]:
    """Returns the sentence task of this run, and the task that the model was trained for.

    These keys of `pretraining_heads.SENTENCE_TASKS` differ only in evaluations. All workers of
    `strategy` must call this function.
    """
    from albert.model import checkpoints
    from albert.training import distribution

    path, checkpoint = settings.output_dir, None
    if settings.loop.checkpoint not in (None, "all", "best", "last"):
        checkpoint = checkpoints.resolve(settings.loop.checkpoint)
        path = os.path.dirname(checkpoint)
    possible = distribution.from_chief(
        strategy, lambda: model_folder.sentence_tasks(path, checkpoint)
    )
    requested = settings.sentence_task
    if not settings.do_train and "sentence_task" not in settings.given:
        requested = possible[0]
    if requested in possible:
        return requested, requested
    trained = f"{path} holds a model trained with --sentence_task={' or '.join(possible)}"
    if settings.do_train:
        raise file_io.InputError(
            f"{trained}: it cannot continue with --sentence_task={requested}. To start a new run "
            "from its weights, give it as --init_checkpoint and use another --output_dir"
        )
    if possible == ["none"]:
        raise file_io.InputError(
            f"{trained}: it has no head that --sentence_task={requested} could measure"
        )
    _log_measured_task(trained, requested, possible[0])
    return requested, possible[0]


def _log_measured_task(trained: str, requested: str, task: str) -> None:
    """Logs what an evaluation with the labels of another sentence task measures.

    Args:
      trained: says which model was trained for what; begins the message.
      requested, task: sentence tasks of the labels and of the model.
    """
    from albert.model import pretraining_heads

    head, labels = (pretraining_heads.SENTENCE_TASKS[name] for name in (task, requested))
    if labels is None or head is None:
        logging.info("%s: its %s head is not measured", trained, head)
        return
    logging.warning(
        "%s: %s_head_on_%s_accuracy and …_loss measure its %s head on %s labels",
        trained,
        head,
        labels,
        head.replace("_", " "),
        labels.replace("_", " "),
    )


# --- batches with equal numbers of tokens ---------------------------------------------------------


def find_batch_size(settings: Settings, strategy: "tf.distribute.Strategy") -> int:
    """Returns the number of examples per step; with --train_batch_tokens the mean number."""
    tokens = settings.train_batch_tokens
    if not tokens:
        if settings.group_by_length:
            raise file_io.InputError(
                "--group_by_length divides batches of --train_batch_tokens: give both"
            )
        return settings.train_batch_size
    from albert.data import dynamic_masking, input_pipeline
    from albert.training import distribution

    flag = f"--train_batch_tokens={tokens}"
    if "train_batch_size" in settings.given:
        raise file_io.InputError(f"{flag} cannot be combined with --train_batch_size: give one")
    is_split = settings.compute.gradient_accumulation_steps > 1
    is_split = is_split or strategy.num_replicas_in_sync > 1
    if is_split or distribution.needs_fixed_shapes(strategy):
        raise file_io.InputError(
            f"{flag} makes batches of different numbers of examples, which cannot be split equally "
            "among devices or --gradient_accumulation_steps, nor run on TPUs: give "
            "--train_batch_size instead"
        )
    if tokens < 2 * settings.max_seq_length:
        raise file_io.InputError(
            f"{flag} must be at least twice --max_seq_length={settings.max_seq_length}"
        )
    sources = input_pipeline.parse_mixture(settings.input_file, "--input_file")
    length = dynamic_masking.mean_length(sources)
    batch_size = max(1, round(tokens / length))
    logging.info("%s: %d examples on average, of %.1f tokens each", flag, batch_size, length)
    return batch_size


# --- BLiMP ----------------------------------------------------------------------------------------


def with_blimp(
    settings: Settings, task: contracts.Task, config: configuration.AlbertConfig
) -> contracts.Task:
    """Returns the task, whose evaluations also measure BLiMP if the flags name its data."""
    if not settings.blimp.blimp_data_dir:
        return task
    from albert.experiments import blimp, sentence_scores

    paradigms = blimp.read(settings.blimp.blimp_data_dir, settings.blimp.blimp_limit)
    source = _find_vocabulary(settings, "--blimp_data_dir")
    tokenizer = model_folder.load_tokenizer(source, config)
    return sentence_scores.with_blimp(task, paradigms, tokenizer)
