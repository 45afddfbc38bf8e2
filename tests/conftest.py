"""Fixtures shared by all tests."""

import os
import pathlib
import signal

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# A shell starts background jobs with Ctrl-C ignored, which the programs under test would inherit.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def golden():
    """Recorded outputs of the reference that hold no third-party text."""
    return REPOSITORY / "tests" / "testdata" / "golden"


@pytest.fixture(scope="session")
def shared():
    """Research data sets and recordings made from them; not part of this repository."""
    path = pathlib.Path(os.environ.get("ALBERT_SHARED", REPOSITORY.parent / "shared"))
    if not (path / "data").is_dir():
        pytest.skip(f"needs the research data in {path} (set ALBERT_SHARED)")
    return path


@pytest.fixture
def run_script():
    """``run_script(module, name=value, …)``: runs a script's main in this process."""
    from absl import flags

    from albert import command_line, file_io

    def run(module, **values):
        flag_values = flags.FlagValues()
        module.define_flags(flag_values)
        flag_values(["script", *(f"--{name}={value}" for name, value in values.items())])
        try:
            return module.main(flag_values)
        except file_io.InputError as error:  # as `command_line.run` prints it
            error.args = (command_line.with_flag_names(str(error), flag_values),)
            raise

    return run
