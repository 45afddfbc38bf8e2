"""Flags of the model that a command starts from."""

from absl import flags

from albert.cli import model_settings, options
from tests.support import builders


def test_flags_find_the_files(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(builders.tiny_config().to_json_string())
    values = flags.FlagValues()
    options.define(model_settings.ModelToUse, values)
    values(
        [
            "script",
            f"--albert_config_file={config}",
            f"--spm_model_file={builders.SPM}",
            "--from_scratch",
            "--nodo_lower_case",
        ]
    )
    found = options.read(model_settings.ModelToUse, values).find()
    assert (found.config_file, found.spm_model_file) == (str(config), str(builders.SPM))
    assert found.rules.do_lower_case is False and found.checkpoint is None
