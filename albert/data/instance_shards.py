"""Makes pre-training records as shards; a run that was killed goes on where it stopped.

Work in progress is in a folder beside the output. Each process notes every pass over a block that
it has finished, then shards are made one by one and noted, and when all are there they take their
names; a manifest, written last, says what they were made of. What a killed process left half-done
is never read. So the files depend on text and settings alone, not on when a run was ended or how
many processes it had.

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

import numpy as np
from absl import logging

from albert.data import instance_files, shuffling, tfrecord
from albert.io import file_io, json_shapes, locks, manifests, processes, progress
from albert.text import corpus, tokenization

VERSION = 1
MAX_SHARDS = 99_999  # five digits
# What files of this module raise when they are read that something else has changed.
_DAMAGE = (AttributeError, KeyError, TypeError, ValueError)  # file_io.InputError is a ValueError
_DESCRIPTION, _PUBLISHING, _LOCK = "job.json", "publishing", "lock"


def shard_paths(prefix, num_shards):
    """Names of the shards: ``<prefix>-00000-of-00003`` and so on."""
    return [f"{prefix}-{number:05d}-of-{num_shards:05d}" for number in range(num_shards)]


def manifest_path(prefix):
    """File that says what the shards were made of; it is there when they are complete."""
    return prefix + tfrecord.MANIFEST


def create(
    input_paths, prefix, num_shards, job, num_workers=1, overwrite_shards=False, make_shards=None
):
    """Writes TFRecord shards of pre-training instances, or what is left to do of them.

    Args:
      input_paths: text files, one sentence a line and a blank line between documents.
      prefix: what the names of the shards begin with; see `shard_paths`.
      num_shards: files to write, each with a random choice of the records.
      job: `instance_files.Job`.
      num_workers: processes; 1 works in this process.
      overwrite_shards: make anew what was made of other text or with other settings.
      make_shards: ``(Work) -> Counter`` that makes all shards of the work, with their notes, by
        other means than processes of this machine; it must see the folder of the output.

    Returns:
      Counter of everything read, made and left out, also by earlier runs.

    Raises:
      file_io.InputError: unreadable text, no room, no right to write; shards are there that were
        made of other text or with other settings; another run is making them.
    """
    if not 1 <= num_shards <= MAX_SHARDS:
        raise file_io.InputError(f"num_shards={num_shards} must be between 1 and {MAX_SHARDS}")
    instance_files.check_outputs(input_paths, shard_paths(prefix, num_shards))
    tokenization.FullTokenizer(job.vocab_file, job.do_lower_case, job.spm_model_file)
    folder = _working_folder(prefix, shared=make_shards is not None)
    description = _describe(input_paths, num_shards, job)
    file_io.make_dirs(folder)
    lock = os.path.join(folder, _LOCK)
    message = f"another run is making {prefix}"
    # What is remote cannot be locked.
    unlocked = contextlib.nullcontext()
    with unlocked if file_io.is_remote(lock) else locks.locked(lock, message):
        try:
            manifest = _finished(prefix, folder, description, overwrite_shards)
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


# --- what a manifest says -----------------------------------------------------------------------

_SHARD = re.compile(r"(?P<prefix>.+)-\d{5}-of-(?P<count>\d{5})")
_SIZES = ("instances", "instance_tokens", "instance_words")  # counts of what records hold
_SHARDS = {"shards": [{"name": str, "instances": int, "bytes": int, "sha256": str}]}


def prefix_of(path):
    """Prefix of the set that a path is a shard of, by its name; None if it is no such name."""
    found = _SHARD.fullmatch(path)
    return found["prefix"] if found else None


def is_set(prefix):
    """Whether there is a manifest of shards of this prefix."""
    if not file_io.exists(manifest_path(prefix)):
        return False
    if _shards_there(prefix):  # also where it is damaged
        return True
    try:
        return "shards" in file_io.read_json(manifest_path(prefix), "manifest")
    except _DAMAGE:
        return False


def _named_shards(prefix):
    """{path: entry} of the shards that the manifest names.

    Raises:
      file_io.InputError: it is damaged.
    """
    path = manifest_path(prefix)
    manifest = file_io.read_json(path, "manifest", dict)
    json_shapes.check(manifest, _SHARDS, path)
    paths = shard_paths(prefix, len(manifest["shards"]))
    names = [shard["name"] for shard in manifest["shards"]]
    if names != list(map(os.path.basename, paths)):
        raise file_io.InputError(f"{path}: the names of the shards are not those of {prefix}")
    return dict(zip(paths, manifest["shards"], strict=True))


def check_sums(prefix, only=None):
    """Compares shards with their manifest; those that it does not name are wrong, too.

    Args:
      prefix: of the shards.
      only: path of the only one to look at; by default all.

    Yields:
      (path of a shard, number of its records, what is wrong or None).

    Raises:
      file_io.InputError: the manifest is damaged.
    """
    named = _named_shards(prefix)
    for path in dict.fromkeys([*named, *_shards_there(prefix)]):
        if only not in (None, path):
            continue
        if shard := named.get(path):
            yield path, shard["instances"], manifests.mismatch("", {path: shard})
        else:
            yield path, 0, f"{manifest_path(prefix)} does not name it"


def check_complete(paths, counts):
    """Refuses record files of sets of shards of which one is missing, or has changed.

    Shards that are there but not among the files, as those held out for an evaluation, do not
    matter. Sums are left to `verify`: they take as long as reading everything.

    Args:
      paths: record files; those that are not shards pass.
      counts: {path: number of its records}.

    Raises:
      file_io.InputError: names the shard; or a manifest is damaged.
    """
    sets = collections.defaultdict(list)
    for path in paths:
        if found := _SHARD.fullmatch(path):
            sets[found["prefix"], int(found["count"])].append(path)
    for (prefix, count), chosen in sets.items():
        there = set(_shards_there(prefix))
        missing = [path for path in shard_paths(prefix, count) if path not in there]
        if not file_io.exists(manifest_path(prefix)):
            if missing:
                logging.warning(
                    "%d of %d shards are missing: %s", len(missing), count, ", ".join(missing)
                )
            continue
        named = _named_shards(prefix)
        again = (
            f"restore it, or make the shards again (to use the others as they are, delete "
            f"{manifest_path(prefix)})"
        )
        if missing := [path for path in named if path not in there]:
            raise file_io.InputError(f"the shard {missing[0]} is missing: {again}")
        for path in chosen:
            wanted = named.get(path)
            if wanted is None:
                raise file_io.InputError(
                    f"{path} is not one of the shards that {manifest_path(prefix)} names, but of "
                    "another set: remove it"
                )
            size = file_io.size(path)
            if size != wanted["bytes"] or counts[path] != wanted["instances"]:
                raise file_io.InputError(
                    f"the shard {path} has {counts[path]} records and {size} bytes, by its "
                    f"manifest {wanted['instances']} and {wanted['bytes']}: {again}"
                )


def words_per_token(sources):
    """Words per token in the records of a run, by the manifests of their sets of shards.

    Tokens are counted with [CLS] and [SEP], words without.

    Args:
      sources: `input_pipeline.Source`s of the run.

    Returns:
      The mean over the records in the shares that the sources' weights give them; None if some
      files belong to no set, or their manifest does not say how many words they hold.
    """
    total = collections.Counter()
    for source in sources:
        prefixes = {prefix_of(path) for path in source.paths}
        if None in prefixes or not all(map(is_set, prefixes)):
            return None
        found = collections.Counter()
        for prefix in prefixes:
            counts = file_io.read_json(manifest_path(prefix), "manifest", dict).get("counts", {})
            if not all(type(counts.get(name)) is int for name in _SIZES):
                return None
            found.update({name: counts[name] for name in _SIZES})
        for name in ("instance_words", "instance_tokens"):
            total[name] += source.weight * found[name] / max(1, found["instances"])
    tokens = total["instance_tokens"]
    return total["instance_words"] / tokens if tokens else None


# --- what is there already ----------------------------------------------------------------------


def _working_folder(prefix, shared):
    """Beside the output, or among the system's temporary files if that is remote and not shared."""
    if shared or not file_io.is_remote(prefix):
        return f"{prefix}.unfinished"
    digest = hashlib.sha256(prefix.encode()).hexdigest()[:16]
    name = f"{os.path.basename(prefix)}.{digest}.unfinished"
    return os.path.join(os.environ.get("TMPDIR", "/tmp"), name)


def _describe(input_paths, num_shards, job):
    """JSON-ready dict of everything that the shards depend on."""
    settings = dataclasses.asdict(job)
    settings |= settings.pop("settings")
    mask = settings.pop("mask")
    settings |= {"mask_in_training": mask is None, **(mask or {})}
    vocabulary = settings.pop("spm_model_file") or settings["vocab_file"]
    settings["vocab_file"] = file_io.sha256(vocabulary)
    return {
        "version": VERSION,
        "settings": {**settings, "num_shards": num_shards},
        "inputs": [
            {"path": path, "bytes": file_io.size(path), "sha256": file_io.sha256(path)}
            for path in input_paths
        ],
    }


def _difference(found, wanted):
    """How two descriptions differ, in words; None if they are equal."""
    if found.get("version") != wanted["version"]:
        return f"were made by version {found.get('version')} of this format, now {VERSION}"
    names = set(found["settings"]) | set(wanted["settings"])
    # First: without masks none of their settings is there either.
    for name in sorted(names, key=lambda name: (name != "mask_in_training", name)):
        old, new = found["settings"].get(name), wanted["settings"].get(name)
        if old != new:
            if name == "vocab_file":
                return "were made with another vocabulary"
            return f"were made with {name}={old}, now it is {new}"
    old, new = found["inputs"], wanted["inputs"]
    if len(old) != len(new):
        return f"were made of {len(old)} input file(s), now there are {len(new)}"
    for before, now in zip(old, new, strict=True):
        if before["sha256"] != now["sha256"]:
            return f"were made of {before['path']}, which has changed or is {now['path']} now"
    return None


def _refuse(prefix, what):
    raise file_io.InputError(
        f"{prefix}: the shards there {what}. Choose another output_file, or give "
        "overwrite_shards=true to make them anew"
    )


def _shards_there(prefix):
    """Names of all shards with this prefix, of any number."""
    folder, name = os.path.split(prefix)
    if not file_io.is_dir(folder or "."):
        return []
    shard = re.compile(re.escape(name) + r"-\d{5}-of-\d{5}")
    return [
        os.path.join(folder, other)
        for other in file_io.listdir(folder or ".")
        if shard.fullmatch(other)
    ]


def _changed(prefix, shards):
    """How finished shards differ from what their manifest says, in words; None if they do not."""
    for shard in shards:
        path = os.path.join(os.path.dirname(prefix), shard["name"])
        if not file_io.exists(path):
            return f"are not complete: {path} is missing"
        if (size := file_io.size(path)) != shard["bytes"]:
            return f"were changed: {path} has {size} bytes, not {shard['bytes']}"
    return None


def _finished(prefix, folder, description, overwrite_shards):
    """The manifest of shards that are what is wanted; None if there is something to make.

    Raises:
      file_io.InputError: other shards are there.
    """
    if not file_io.exists(manifest_path(prefix)):
        ours = file_io.exists(os.path.join(folder, _PUBLISHING))
        if _shards_there(prefix) and not ours and not overwrite_shards:
            _refuse(prefix, "have no manifest: they are of another program")
        return None
    try:
        manifest = file_io.read_json(manifest_path(prefix), "manifest")
        reason = _difference(manifest, description) or _changed(prefix, manifest["shards"])
        if reason is None:
            json_shapes.check(manifest["counts"], {"*": int}, "counts")
            return manifest
    except _DAMAGE as error:
        reason = None
        logging.warning("%s: %s", manifest_path(prefix), error)
    reason = reason or "have a manifest that is damaged"
    if not overwrite_shards:
        _refuse(prefix, reason)
    logging.warning("Making %s anew: the shards there %s", prefix, reason)
    return None


def _begin(folder, description, overwrite_shards):
    """Makes sure that what is in the working folder belongs to the job.

    Raises:
      file_io.InputError: it belongs to another one.
    """
    path = os.path.join(folder, _DESCRIPTION)
    if file_io.exists(path):
        try:
            reason = _difference(file_io.read_json(path, "unfinished job"), description)
        except _DAMAGE as error:
            reason = f"are not described any more ({error})"
        if reason is None:
            return
        if not overwrite_shards:
            _refuse(folder.removesuffix(".unfinished"), f"are unfinished and {reason}")
        logging.warning("Removing the unfinished shards in %s: they %s", folder, reason)
        file_io.remove(path)  # First: without it the rest counts for nothing.
    for name in file_io.listdir(folder):
        if name != _LOCK:
            file_io.remove(os.path.join(folder, name))
    file_io.write_json(path, description)


# --- work -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Work:
    """All shards of a job.

    Attributes:
      job: `instance_files.Job`.
      folder: what to make them in.
      units: `instance_files.Unit`s that the text is divided into.
      num_shards: how many.
      buckets: how many a shard has: bucket b belongs to shard b // buckets.
    """

    job: instance_files.Job
    folder: str
    units: list
    num_shards: int
    buckets: int


@dataclasses.dataclass(frozen=True)
class _ShardArguments:
    """What the processes that make shards are given.

    Attributes:
      job: `instance_files.Job`.
      folder: of the buckets and the shards.
      buckets: how many a shard has.
      writers: {(block, pass): name of the writer whose records of it count}.
    """

    job: instance_files.Job
    folder: str
    buckets: int
    writers: dict


class _ShardMaker:
    """Makes shards of buckets, in one process."""

    def __init__(self, arguments, advance):
        self._arguments, self._advance = arguments, advance

    def run(self, shard):
        """Writes shard number `shard`, notes it and deletes its buckets."""
        arguments = self._arguments
        files = shuffling.bucket_files(arguments.folder)
        buckets = range(shard * arguments.buckets, (shard + 1) * arguments.buckets)
        records = (record for bucket in buckets for record in self._records(bucket, files[bucket]))
        count = write_shard(arguments.folder, shard, ((1, r) for r in records), arguments.job)
        for bucket in buckets:
            for path in files[bucket].values():
                file_io.remove(path)
        self._advance(count)

    def _records(self, bucket, files):
        writer_of = {path: writer for writer, path in files.items()}
        wanted = self._arguments.writers
        return shuffling.shuffled_bucket(
            list(writer_of),
            shuffle_rng(self._arguments.job, bucket),
            lambda path, *key: wanted[tuple(key)] == writer_of[path],
        )


def write_shard(folder, shard, parts, job):
    """Writes a shard and then its note; the number of its records.

    Args:
      folder: of the work.
      shard: number.
      parts: iterable of (number of records, their framed bytes).
      job: `instance_files.Job`.
    """
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


def shuffle_rng(job, bucket):
    """Generator that decides on the order within a bucket."""
    seed = job.settings.random_seed
    return np.random.default_rng([seed, instance_files.SHUFFLE_STREAM, bucket])


def _shard_path(folder, shard):
    return os.path.join(folder, f"shard-{shard:05d}")


def _note_path(folder, shard):
    return f"{_shard_path(folder, shard)}.json"


@dataclasses.dataclass(frozen=True)
class _Run:
    """One run of a job in its working folder."""

    input_paths: list
    prefix: str
    num_shards: int
    job: instance_files.Job
    folder: str
    num_workers: int

    def make(self, make_shards):
        """Makes all shards that are missing; what the manifest says of them."""
        plan = corpus.plan_blocks(self.input_paths)
        num_bytes = instance_files.expected_bytes(plan, self.job)
        # A shard that is large has several buckets, so that memory stays bounded.
        buckets = -(-shuffling.num_buckets(num_bytes) // self.num_shards)
        counts = instance_files.text_counts(self.input_paths, plan)
        if make_shards:
            work = Work(self.job, self.folder, self._units(plan), self.num_shards, buckets)
            counts.update(make_shards(work))
        else:
            counts.update(self._make_here(plan, buckets, num_bytes))
        instance_files.check_instances(counts, self.input_paths, self.job.settings)
        notes = [
            file_io.read_json(_note_path(self.folder, shard), "finished shard")
            for shard in range(self.num_shards)
        ]
        if (found := sum(note["instances"] for note in notes)) != counts["instances"]:
            raise file_io.InputError(
                f"{self.folder} holds {found} of {counts['instances']} instances: files in it are "
                "damaged; remove the folder and start again"
            )
        names = map(os.path.basename, shard_paths(self.prefix, self.num_shards))
        shards = [{"name": name, **note} for name, note in zip(names, notes, strict=True)]
        return {"counts": dict(counts), "shards": shards}

    def _units(self, plan):
        return instance_files.divide(plan.blocks, self.job.dupe_factor, self.num_workers)

    def _make_here(self, plan, buckets, num_bytes):
        done = self._make_instances(plan, buckets, num_bytes)
        counts = collections.Counter()
        for _, pass_counts in done.values():
            counts.update(pass_counts)
        self._make_shards(buckets, {key: writer for key, (writer, _) in done.items()}, counts)
        return counts

    def _make_instances(self, plan, buckets, num_bytes):
        """{(block, pass): (writer, counts)} of all, after those that were missing are made."""
        done, last_run = _journals(self.folder)
        units = [
            dataclasses.replace(unit, passes=left)
            for unit in self._units(plan)
            if (left := tuple(n for n in unit.passes if (unit.block, n) not in done))
        ]
        if done:
            logging.info(
                "Going on with %s: %d of %d passes over a block were made earlier",
                self.folder,
                len(done),
                len(plan.blocks) * self.job.dupe_factor,
            )
        if units:
            instance_files.warn_if_disk_is_small(self.folder, num_bytes)
            arguments = instance_files.MakerArguments(
                self.job, self.folder, self.num_shards * buckets, last_run + 1
            )
            for _ in instance_files.make_instances(arguments, units, self.num_workers):
                pass
            done, _ = _journals(self.folder)
        return done

    def _make_shards(self, buckets, writers, counts):
        left = [
            shard
            for shard in range(self.num_shards)
            if not file_io.exists(_note_path(self.folder, shard))
        ]
        arguments = _ShardArguments(self.job, self.folder, buckets, writers)
        workers = min(self.num_workers, len(left))
        with progress.Progress("writing", counts["instances"], "instances") as shown:
            for _ in processes.run(_ShardMaker, arguments, left, workers, shown):
                pass

    def publish(self, manifest):
        """Gives the shards, and last the manifest, their names; older ones are removed."""
        marker = os.path.join(self.folder, _PUBLISHING)
        targets = shard_paths(self.prefix, self.num_shards)
        if not file_io.exists(marker):
            file_io.remove(manifest_path(self.prefix))
            for path in _shards_there(self.prefix):
                file_io.remove(path)
            file_io.write_text(marker, "")
        move = file_io.copy if file_io.is_remote(self.prefix) else file_io.rename
        for shard, target in enumerate(targets):
            if file_io.exists(source := _shard_path(self.folder, shard)):
                move(source, target)
        path = os.path.join(self.folder, "manifest.json")
        file_io.write_json(path, manifest)
        move(path, manifest_path(self.prefix))


def _journals(folder):
    """({(block, pass): (writer, counts)} of what is finished, number of the last run)."""
    done, last_run = {}, 0
    start = instance_files.journal_path("", "")
    for name in file_io.listdir(folder):
        if name.startswith((start, "bucket-")):
            writer = name.split(".", 1)[1]
            last_run = max(last_run, int(writer.split(".")[0]))
        if name.startswith(start):
            text = file_io.read_text(os.path.join(folder, name), "journal")
            # What is behind the last line end was being written when the process was killed.
            for line in text.split("\n")[:-1]:
                try:
                    block, pass_number, counts = json.loads(line)
                    done.setdefault((block, pass_number), (writer, collections.Counter(counts)))
                except _DAMAGE as error:
                    raise file_io.InputError(
                        f"{os.path.join(folder, name)} is damaged ({error}); remove the folder and "
                        "start again"
                    ) from error
    return done, last_run
