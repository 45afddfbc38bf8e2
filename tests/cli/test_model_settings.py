"""Flags of the model that a command starts from."""

from albert.cli import model_settings
from tests.support import builders, command_lines


def test_flags_find_the_files(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(builders.tiny_config().to_json_string())
    files = {"albert_config_file": config, "spm_model_file": builders.SPM}
    words = ["--from_scratch", "--nodo_lower_case"]
    found = command_lines.read(model_settings.ModelToUse, *words, **files).find()
    assert (found.config_file, found.spm_model_file) == (str(config), str(builders.SPM))
    assert found.rules.do_lower_case is False and found.checkpoint is None
