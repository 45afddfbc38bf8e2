"""Reading what a folder of sentence-transformers says about its vectors."""

import pytest

from albert.io import file_io
from albert.model import pooling
from tests.support import builders


@pytest.mark.parametrize(("kind", "expected"), [("mean_tokens", "mean"), ("cls_token", "cls")])
def test_the_folder_says_its_pooling(tmp_path, kind, expected, caplog):
    assert pooling.read(str(tmp_path)) is None
    builders.write_pooling(tmp_path, kind, ["Normalize"])
    assert pooling.read(str(tmp_path)) == expected and not caplog.records
    file_io.write_json(str(tmp_path / "Pooling" / "config.json"), {"pooling_mode": expected})
    assert pooling.read(str(tmp_path)) == expected


def test_what_is_not_computed_gets_a_warning(tmp_path, caplog):
    builders.write_pooling(tmp_path, "max_tokens", ["Dense"])
    assert pooling.read(str(tmp_path)) is None
    assert "also has Dense" in caplog.messages[0] and "asks for max," in caplog.messages[1]
    (tmp_path / "modules.json").write_text("{}")
    with pytest.raises(file_io.InputError, match="modules.json"):
        pooling.read(str(tmp_path))
