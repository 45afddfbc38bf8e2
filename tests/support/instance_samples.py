"""Jobs that make small pre-training files, and the files that they leave."""

from albert.data import instance_files, instances, masking
from albert.text import corpus
from tests.support.sources import ROOT

SENTENCES = [
    "the old harbour lies at the end of a narrow road",
    "every morning the boats leave before the sun is up",
    "nobody knew who had painted the door of the library green",
    "it rained all night",
    "the cook made bread, soup and a cake with apples",
]
VOCABULARY = ROOT / "tests" / "testdata" / "tiny.model"


def make_job(dupe_factor=2, compress=False, **settings):
    settings = {"max_seq_length": 40, "mask": masking.MaskingConfig(6), **settings}
    return instance_files.Job(
        instances.Settings(**settings),
        dupe_factor,
        spm_model_file=str(VOCABULARY),
        compress=compress,
    )


def use_small_blocks(monkeypatch, block_bytes=1500):
    """A few kilobytes of text make several blocks; workers get them through the plan."""
    plan = corpus.plan_blocks
    monkeypatch.setattr(corpus, "plan_blocks", lambda paths: plan(paths, block_bytes, 10**6))


def content_of(folder):
    """{name: bytes} of the files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
