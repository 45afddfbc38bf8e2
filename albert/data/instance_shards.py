"""Makes pre-training records as shards; a run that was killed resumes where it stopped.

Unfinished files are in a folder next to the output. Each process notes every pass over a block that
it has finished. Then shards are made one by one and noted, and when all are complete they are
renamed. A manifest, written last, describes what they were made of. Unfinished work of a killed
process is never read. So the files depend on text and settings alone, not on when a run ended or on
the number of processes.

The records of a block and pass are those of `instance_files.create`; here each goes to a shard
drawn at random.
"""

import collections
import contextlib
import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from absl import logging

from albert.data import input_options, instance_files, shuffling, tfrecord
from albert.io import file_io, json_shapes, locks, manifests, processes, progress
from albert.text import corpus, text_rules, wordpiece

VERSION = 1
MAX_SHARDS = 99_999  # five digits
# Errors from files of this module that another program has changed.
_DAMAGE = (AttributeError, KeyError, TypeError, ValueError)  # file_io.InputError is a ValueError
_DESCRIPTION, _PUBLISHING, _LOCK = "job.json", "publishing", "lock"
_SHARD = re.compile(r"(?P<prefix>.+)-\d{5}-of-(?P<count>\d{5})")
_SIZES = ("instances", "instance_tokens", "instance_words")  # counts of what records hold
_SHARDS = {"shards": [{"name": str, "instances": int, "bytes": int, "sha256": str}]}

Key = tuple[int, int]  # block, pass
Passes = dict[Key, tuple[str, collections.Counter[str]]]  # (name of the writer, counts) of each


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """All shards of a job.

    Attributes:
      buckets: number of buckets per shard: bucket b belongs to shard b // buckets.
    """

    job: instance_files.Job
    folder: str
    units: list[instance_files.Unit]
    num_shards: int
    buckets: int

    @property
    def num_buckets(self) -> int:
        """Number of buckets of all shards."""
        return self.num_shards * self.buckets


MakeShards = Callable[[ShardPlan], Mapping[str, int]]


def shard_paths(prefix: str, num_shards: int) -> list[str]:
    """Returns the names of the shards: ``<prefix>-00000-of-00003`` and so on."""
    return [f"{prefix}-{number:05d}-of-{num_shards:05d}" for number in range(num_shards)]


def manifest_path(prefix: str) -> str:
    """Returns the file that describes complete shards and what they were made of."""
    return prefix + tfrecord.MANIFEST


def create(
    input_paths: Sequence[str],
    prefix: str,
    num_shards: int,
    job: instance_files.Job,
    num_workers: int = 1,
    overwrite_shards: bool = False,
    make_shards: MakeShards | None = None,
) -> collections.Counter[str]:
    """Writes TFRecord shards of pre-training instances, or the missing ones.

    Args:
      input_paths: text files, one sentence per line and a blank line between documents.
      prefix: start of the paths of the shards, see `shard_paths`.
      num_shards: files to write, each with a random choice of the records.
      overwrite_shards: replace shards that were made of other text or with other settings.
      make_shards: makes all shards, with their notes, by other means than processes of this
        machine, and returns counts; it must see the folder of the output.
    """
    if not 1 <= num_shards <= MAX_SHARDS:
        raise file_io.InputError(f"num_shards={num_shards} must be between 1 and {MAX_SHARDS}")
    instance_files.check_outputs(input_paths, shard_paths(prefix, num_shards))
    job.check_vocabulary()
    folder = _working_folder(prefix, shared=make_shards is not None)
    description = _describe(input_paths, num_shards, job)
    file_io.make_dirs(folder)
    lock = os.path.join(folder, _LOCK)
    message = f"another run is making {prefix}"
    # Remote files cannot be locked.
    unlocked = contextlib.nullcontext()
    with unlocked if file_io.is_remote(lock) else locks.locked(lock, message):
        try:
            manifest = _find_finished(prefix, folder, description, overwrite_shards)
            if manifest is None:
                _begin(folder, description, overwrite_shards)
        except file_io.InputError:
            if not file_io.exists(os.path.join(folder, _DESCRIPTION)):
                file_io.remove(folder)
            raise
        if manifest is None:
            run = _Run(input_paths, prefix, num_shards, job, folder, num_workers)
            manifest = {**description, **run.make(make_shards)}
            run.publish(manifest)
        else:
            logging.info("%s: all shards were made earlier", prefix)
        file_io.remove(folder)
    return collections.Counter(manifest["counts"])


def prefix_of(path: str) -> str | None:
    """Returns the prefix of the set of shards that a path belongs to; None for other names."""
    match = _SHARD.fullmatch(path)
    return match["prefix"] if match else None


def is_set(prefix: str) -> bool:
    """Returns whether there is a manifest of shards of this prefix."""
    if not file_io.exists(manifest_path(prefix)):
        return False
    if _find_shards(prefix):  # even if the manifest is damaged
        return True
    try:
        return "shards" in file_io.read_json(manifest_path(prefix), "manifest")
    except _DAMAGE:
        return False


def _named_shards(prefix: str) -> dict[str, dict[str, Any]]:
    """Returns {path: entry} of the shards that the manifest names."""
    path = manifest_path(prefix)
    manifest = file_io.read_json(path, "manifest", dict)
    json_shapes.check(manifest, _SHARDS, path)
    paths = shard_paths(prefix, len(manifest["shards"]))
    names = [shard["name"] for shard in manifest["shards"]]
    if names != list(map(os.path.basename, paths)):
        raise file_io.InputError(f"{path}: the names of the shards are not those of {prefix}")
    return dict(zip(paths, manifest["shards"], strict=True))


def check_sums(prefix: str, only: str | None = None) -> Iterator[tuple[str, int, str | None]]:
    """Compares shards with their manifest; reports also shards that it does not name.

    Args:
      prefix: start of the paths of the shards.
      only: path of the only shard to check; by default all.

    Yields:
      (path of a shard, number of its records, what is wrong or None).
    """
    entries = _named_shards(prefix)
    for path in dict.fromkeys([*entries, *_find_shards(prefix)]):
        if only not in (None, path):
            continue
        if shard := entries.get(path):
            yield path, shard["instances"], manifests.mismatch("", {path: shard})
        else:
            yield path, 0, f"{manifest_path(prefix)} does not name it"


def check_complete(paths: Iterable[str], counts: Mapping[str, int]) -> None:
    """Checks that the sets of the shards among record files are complete and unchanged.

    Shards that exist but are not among the files, as those held out for an evaluation, are allowed.
    The command `verify` compares checksums, which takes as long as reading everything.

    Args:
      paths: record files; other names than those of shards are allowed.
    """
    sets = collections.defaultdict(list)
    for path in paths:
        if match := _SHARD.fullmatch(path):
            sets[match["prefix"], int(match["count"])].append(path)
    for (prefix, count), set_paths in sets.items():
        existing = set(_find_shards(prefix))
        missing = [path for path in shard_paths(prefix, count) if path not in existing]
        if not file_io.exists(manifest_path(prefix)):
            if missing:
                logging.warning(
                    "%d of %d shards are missing: %s", len(missing), count, ", ".join(missing)
                )
            continue
        entries = _named_shards(prefix)
        again = (
            f"restore it, or make the shards again (to use the others as they are, delete "
            f"{manifest_path(prefix)})"
        )
        if missing := [path for path in entries if path not in existing]:
            raise file_io.InputError(f"the shard {missing[0]} is missing: {again}")
        for path in set_paths:
            entry = entries.get(path)
            if entry is None:
                raise file_io.InputError(
                    f"{path} is not one of the shards that {manifest_path(prefix)} names, but of "
                    "another set: remove it"
                )
            size = file_io.size(path)
            if size != entry["bytes"] or counts[path] != entry["instances"]:
                raise file_io.InputError(
                    f"the shard {path} has {counts[path]} records and {size} bytes, by its "
                    f"manifest {entry['instances']} and {entry['bytes']}: {again}"
                )


def _manifest_settings(paths: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (path of the manifest, its settings) of each set of shards that has them."""
    for prefix in dict.fromkeys(filter(None, map(prefix_of, paths))):
        name = manifest_path(prefix)
        if file_io.exists(name):
            settings = file_io.read_json(name, "manifest", dict).get("settings")
            if isinstance(settings, dict):
                yield name, settings


def check_sentence_task(paths: Iterable[str], task: str) -> None:
    """Checks that labels of sets of shards are for "sop" or "nsp", where a manifest says it."""
    for name, settings in _manifest_settings(paths):
        made_for = settings.get("sentence_task", task)
        labels = "sop" if made_for == "reference" else made_for
        if labels != task:
            raise file_io.InputError(
                f"{name}: the records were made with sentence_task={made_for}, so their labels do "
                f"not teach sentence_task={task}: give sentence_task={labels}, or make them again"
            )


def check_vocabulary(
    paths: Iterable[str], vocabulary: str, rules: text_rules.TextRules, sentencepiece: bool
) -> None:
    """Checks that sets of shards have this vocabulary and rules, where a manifest says it."""
    ours = _vocabulary_sum(vocabulary)
    for name, settings in _manifest_settings(paths):
        if "vocab_file" not in settings:
            continue
        problem = ""
        if settings["vocab_file"] != ours:
            problem = f"the records were made with another vocabulary than {vocabulary}"
        elif differing := rules.differences(text_rules.from_json(settings, name), sentencepiece):
            problem = f"with {vocabulary} this run has other rules than the records: {differing}"
        if problem:
            raise file_io.InputError(
                f"{name}: {problem}. Give the vocabulary (spm_model_file or vocab_file), "
                "do_lower_case, keep_accents and extra_pieces that the records were made with, or "
                "make them again"
            )


def words_per_token(sources: Iterable[input_options.Source]) -> float | None:
    """Returns the words per token in the records of a run, by the manifests of sets of shards.

    Tokens are counted with [CLS] and [SEP], words without.

    Returns:
      The mean over the records in the shares that the sources' weights give them; None if some
      files belong to no set, or their manifest does not say how many words they hold.
    """
    total = {"instance_words": 0.0, "instance_tokens": 0.0}
    for source in sources:
        prefixes = {prefix_of(path) for path in source.paths}
        sets = [prefix for prefix in prefixes if prefix is not None and is_set(prefix)]
        if len(sets) < len(prefixes):
            return None
        sizes: collections.Counter[str] = collections.Counter()
        for prefix in sets:
            counts = file_io.read_json(manifest_path(prefix), "manifest", dict).get("counts", {})
            if not all(type(counts.get(name)) is int for name in _SIZES):
                return None
            sizes.update({name: counts[name] for name in _SIZES})
        for name in total:
            total[name] += source.weight * sizes[name] / max(1, sizes["instances"])
    tokens = total["instance_tokens"]
    return total["instance_words"] / tokens if tokens else None


def _working_folder(prefix: str, shared: bool) -> str:
    """Returns a folder next to the output, or a temporary one if that is remote and not shared."""
    if shared or not file_io.is_remote(prefix):
        return f"{prefix}.unfinished"
    digest = hashlib.sha256(prefix.encode()).hexdigest()[:16]
    name = f"{os.path.basename(prefix)}.{digest}.unfinished"
    return os.path.join(os.environ.get("TMPDIR", "/tmp"), name)


def _describe(
    input_paths: Sequence[str], num_shards: int, job: instance_files.Job
) -> dict[str, Any]:
    """Returns a JSON-ready dict of everything that the shards depend on."""
    settings = dataclasses.asdict(job)
    settings |= settings.pop("settings")
    settings |= job.rules.to_json()
    del settings["rules"]
    mask = settings.pop("mask")
    settings |= {"mask_in_training": mask is None, **(mask or {})}
    vocabulary = settings.pop("spm_model_file") or settings["vocab_file"]
    settings["vocab_file"] = _vocabulary_sum(vocabulary)
    return {
        "version": VERSION,
        "settings": {**settings, "num_shards": num_shards},
        "inputs": [
            {"path": path, "bytes": file_io.size(path), "sha256": file_io.sha256(path)}
            for path in input_paths
        ],
    }


def _vocabulary_sum(path: str) -> str:
    """Returns the SHA-256 of a vocabulary; of a JSON file, that of its copy in model folders."""
    if path.endswith(".json"):
        text = wordpiece.vocab_text(wordpiece.load_vocab(path))
        return hashlib.sha256(text.encode()).hexdigest()
    return file_io.sha256(path)


def _difference(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str | None:
    """Returns how two descriptions differ, in words; None if they are equal."""
    if theirs.get("version") != ours["version"]:
        return f"were made by version {theirs.get('version')} of this format, now {VERSION}"
    names = set(theirs["settings"]) | set(ours["settings"])
    # First, as without masks their settings are missing also.
    for name in sorted(names, key=lambda name: (name != "mask_in_training", name)):
        old, new = theirs["settings"].get(name), ours["settings"].get(name)
        if old != new:
            if name == "vocab_file":
                return "were made with another vocabulary"
            return f"were made with {name}={old}, now it is {new}"
    old, new = theirs["inputs"], ours["inputs"]
    if len(old) != len(new):
        return f"were made of {len(old)} input file(s), now there are {len(new)}"
    for before, now in zip(old, new, strict=True):
        if before["sha256"] != now["sha256"]:
            return f"were made of {before['path']}, which has changed or is {now['path']} now"
    return None


def _raise_conflict(prefix: str, what: str) -> NoReturn:
    raise file_io.InputError(
        f"{prefix}: the shards there {what}. Choose another output_file, or give "
        "overwrite_shards=true to make them again"
    )


def _find_shards(prefix: str) -> list[str]:
    """Returns the paths of all existing shards with this prefix, of any number."""
    folder, name = os.path.split(prefix)
    if not file_io.is_dir(folder or "."):
        return []
    shard = re.compile(re.escape(name) + r"-\d{5}-of-\d{5}")
    return [
        os.path.join(folder, other)
        for other in file_io.listdir(folder or ".")
        if shard.fullmatch(other)
    ]


def _find_change(prefix: str, shards: Iterable[Mapping[str, Any]]) -> str | None:
    """Returns how finished shards differ from their manifest, in words; None if they do not."""
    for shard in shards:
        path = os.path.join(os.path.dirname(prefix), shard["name"])
        if not file_io.exists(path):
            return f"are not complete: {path} is missing"
        if (size := file_io.size(path)) != shard["bytes"]:
            return f"were changed: {path} has {size} bytes, not {shard['bytes']}"
    return None


def _find_finished(
    prefix: str, folder: str, description: Mapping[str, Any], overwrite_shards: bool
) -> dict[str, Any] | None:
    """Returns the manifest of finished shards of this description; None if shards must be made."""
    if not file_io.exists(manifest_path(prefix)):
        ours = file_io.exists(os.path.join(folder, _PUBLISHING))
        if _find_shards(prefix) and not ours and not overwrite_shards:
            _raise_conflict(prefix, "have no manifest: another program made them")
        return None
    try:
        manifest = file_io.read_json(manifest_path(prefix), "manifest")
        reason = _difference(manifest, description) or _find_change(prefix, manifest["shards"])
        if reason is None:
            json_shapes.check(manifest["counts"], {"*": int}, "counts")
            return manifest
    except _DAMAGE as error:
        reason = None
        logging.warning("%s: %s", manifest_path(prefix), error)
    reason = reason or "have a damaged manifest"
    if not overwrite_shards:
        _raise_conflict(prefix, reason)
    logging.warning("Making %s again: the shards there %s", prefix, reason)
    return None


def _begin(folder: str, description: Mapping[str, Any], overwrite_shards: bool) -> None:
    """Prepares the working folder: keeps the work of the same job, removes other files."""
    path = os.path.join(folder, _DESCRIPTION)
    if file_io.exists(path):
        try:
            reason = _difference(file_io.read_json(path, "unfinished job"), description)
        except _DAMAGE as error:
            reason = f"have a damaged description ({error})"
        if reason is None:
            return
        if not overwrite_shards:
            _raise_conflict(folder.removesuffix(".unfinished"), f"are unfinished and {reason}")
        logging.warning("Removing the unfinished shards in %s: they %s", folder, reason)
        file_io.remove(path)  # First: without it the other files are ignored.
    for name in file_io.listdir(folder):
        if name != _LOCK:
            file_io.remove(os.path.join(folder, name))
    file_io.write_json(path, description)


class _ShardMaker:
    """Makes shards of buckets, in one process.

    Args:
      arguments: the work, and {key: name of the writer whose records of this pass are used}.
      advance: called with numbers of written records.
    """

    def __init__(
        self, arguments: tuple[ShardPlan, Mapping[Key, str]], advance: Callable[[int], None]
    ) -> None:
        self._work, self._writers = arguments
        self._advance = advance

    def run(self, shard: int) -> None:
        """Writes shard number `shard`, notes it and deletes its buckets."""
        work = self._work
        files = shuffling.bucket_files(work.folder)
        buckets = range(shard * work.buckets, (shard + 1) * work.buckets)
        records = (record for bucket in buckets for record in self._records(bucket, files[bucket]))
        count = write_shard(work.folder, shard, ((1, r) for r in records), work.job)
        for bucket in buckets:
            for path in files[bucket].values():
                file_io.remove(path)
        self._advance(count)

    def _records(self, bucket: int, files: Mapping[str, str]) -> Iterator[bytes]:
        writer_of = {path: writer for writer, path in files.items()}
        return shuffling.shuffled_bucket(
            list(writer_of),
            shuffle_rng(self._work.job, bucket),
            lambda path, *key: self._writers[key] == writer_of[path],
        )


def write_shard(
    folder: str, shard: int, parts: Iterable[tuple[int, bytes]], job: instance_files.Job
) -> int:
    """Writes a shard of (number of records, framed bytes), and its note; returns their number."""
    path, count = _shard_path(folder, shard), 0
    with file_io.writing(folder):
        with file_io.atomic_writer(path, "wb") as file, contextlib.ExitStack() as stack:
            if job.compress:
                file = stack.enter_context(tfrecord.compressing(file))
            for number, content in parts:
                file.write(content)
                count += number
        note = {"instances": count, "bytes": file_io.size(path), "sha256": file_io.sha256(path)}
        file_io.write_json(_note_path(folder, shard), note)
    return count


def shuffle_rng(job: instance_files.Job, bucket: int) -> np.random.Generator:
    """Returns the generator that decides the order within a bucket."""
    seed = job.settings.random_seed
    return np.random.default_rng([seed, instance_files.SHUFFLE_STREAM, bucket])


def _shard_path(folder: str, shard: int) -> str:
    return os.path.join(folder, f"shard-{shard:05d}")


def _note_path(folder: str, shard: int) -> str:
    return f"{_shard_path(folder, shard)}.json"


@dataclasses.dataclass(frozen=True)
class _Run:
    """One run of a job in its working folder."""

    input_paths: Sequence[str]
    prefix: str
    num_shards: int
    job: instance_files.Job
    folder: str
    num_workers: int

    def make(self, make_shards: MakeShards | None) -> dict[str, Any]:
        """Makes all missing shards; returns their entries in the manifest."""
        plan = corpus.plan_blocks(self.input_paths)
        num_bytes = instance_files.expected_bytes(plan, self.job)
        # A large shard has several buckets, so that memory stays bounded.
        buckets = -(-shuffling.num_buckets(num_bytes) // self.num_shards)
        units = instance_files.divide(plan.blocks, self.job.dupe_factor, self.num_workers)
        work = ShardPlan(self.job, self.folder, units, self.num_shards, buckets)
        counts = instance_files.text_counts(self.input_paths, plan)
        counts.update(make_shards(work) if make_shards else self._make_here(work, num_bytes))
        instance_files.check_instances(counts, self.input_paths, self.job.settings)
        notes = [
            file_io.read_json(_note_path(self.folder, shard), "finished shard")
            for shard in range(self.num_shards)
        ]
        if (total := sum(note["instances"] for note in notes)) != counts["instances"]:
            raise file_io.InputError(
                f"{self.folder} holds {total} of {counts['instances']} instances: files in it are "
                "damaged; remove the folder and start again"
            )
        names = map(os.path.basename, shard_paths(self.prefix, self.num_shards))
        shards = [{"name": name, **note} for name, note in zip(names, notes, strict=True)]
        return {"counts": dict(counts), "shards": shards}

    def _make_here(self, work: ShardPlan, num_bytes: float) -> collections.Counter[str]:
        """Makes all missing shards in processes of this machine."""
        passes = self._make_instances(work, num_bytes)
        counts: collections.Counter[str] = collections.Counter()
        for _, pass_counts in passes.values():
            counts.update(pass_counts)
        writers = {key: writer for key, (writer, _) in passes.items()}
        shards = [
            shard
            for shard in range(self.num_shards)
            if not file_io.exists(_note_path(self.folder, shard))
        ]
        workers = min(self.num_workers, len(shards))
        with progress.Progress("writing", counts["instances"], "instances") as bar:
            for _ in processes.run(_ShardMaker, (work, writers), shards, workers, bar):
                pass
        return counts

    def _make_instances(self, work: ShardPlan, num_bytes: float) -> Passes:
        """Makes the missing passes; returns all."""
        passes, last_run = _read_journals(self.folder)
        units = [
            dataclasses.replace(unit, passes=missing)
            for unit in work.units
            if (missing := tuple(n for n in unit.passes if (unit.block, n) not in passes))
        ]
        if passes:
            logging.info(
                "Resuming %s: %d of %d passes over a block were made earlier",
                self.folder,
                len(passes),
                sum(len(unit.passes) for unit in work.units),
            )
        if units:
            instance_files.warn_if_disk_is_small(self.folder, num_bytes)
            arguments = instance_files.MakerArguments(
                self.job, self.folder, work.num_buckets, last_run + 1
            )
            for _ in instance_files.make_instances(arguments, units, self.num_workers):
                pass
            passes, _ = _read_journals(self.folder)
        return passes

    def publish(self, manifest: Mapping[str, Any]) -> None:
        """Gives the shards, and last the manifest, their names; removes older ones."""
        marker = os.path.join(self.folder, _PUBLISHING)
        targets = shard_paths(self.prefix, self.num_shards)
        if not file_io.exists(marker):
            file_io.remove(manifest_path(self.prefix))
            for path in _find_shards(self.prefix):
                file_io.remove(path)
            file_io.write_text(marker, "")
        move = file_io.copy if file_io.is_remote(self.prefix) else file_io.rename
        for shard, target in enumerate(targets):
            if file_io.exists(source := _shard_path(self.folder, shard)):
                move(source, target)
        path = os.path.join(self.folder, "manifest.json")
        file_io.write_json(path, manifest)
        move(path, manifest_path(self.prefix))


def _read_journals(folder: str) -> tuple[Passes, int]:
    """Returns (finished passes, number of the last run)."""
    passes: Passes = {}
    last_run = 0
    start = instance_files.journal_path("", "")
    for name in file_io.listdir(folder):
        if name.startswith((start, "bucket-")):
            writer = name.split(".", 1)[1]
            last_run = max(last_run, int(writer.split(".")[0]))
        if name.startswith(start):
            text = file_io.read_text(os.path.join(folder, name), "journal", max_bytes=None)
            # A killed process may have left an unfinished line at the end.
            for line in text.split("\n")[:-1]:
                try:
                    block, pass_number, counts = json.loads(line)
                    passes.setdefault((block, pass_number), (writer, collections.Counter(counts)))
                except _DAMAGE as error:
                    raise file_io.InputError(
                        f"{os.path.join(folder, name)} is damaged ({error}); remove the folder and "
                        "start again"
                    ) from error
    return passes, last_run
