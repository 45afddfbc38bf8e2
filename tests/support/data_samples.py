"""The data of a run without a task: records that exist."""

import dataclasses
from collections.abc import Sequence

from albert.data.tfrecord import FeatureSpec
from albert.training import contracts


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordData(contracts.Data):
    """The same record files for all splits; predictions are not written."""

    paths: list[str]
    features: Sequence[FeatureSpec]
    sources: Sequence[str] = ()  # the files that the examples came from

    def specs(self, split):
        return self.features

    def make_records(self, split):
        return self.paths

    def files(self, split):
        return [*self.sources]

    def read_ids(self):
        return []

    def write_predictions(self, output_dir, rows, ids, prefix):
        return None
