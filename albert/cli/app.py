"""Starts and ends every script: TensorFlow version check, messages, exit status."""

import contextlib
import re
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags, logging

from albert.cli import command_help, commands, packaged_files
from albert.io import file_io, log_format, requirements, signals, tensorflow_start

# As in setup.py; the oldest tested version.
_MIN_TENSORFLOW = [2, 18]
# Distributions that bring the module `tensorflow`.
_TENSORFLOWS = """
    tensorflow tensorflow-cpu tensorflow-gpu tensorflow-intel tensorflow-macos tensorflow-rocm
    tensorflow-aarch64 tensorflow-cpu-aws intel-tensorflow tf-nightly tf-nightly-cpu tf-nightly-gpu
""".split()
_SAVES = "save_checkpoints_steps"  # a flag of every script that saves checkpoints


def with_flag_names(message: str, flag_values: flags.FlagValues) -> str:
    """Returns a library's message with parameter names replaced by the script's flag names.

    A flag name gets dashes if it cannot be an ordinary word: it has an underscore, is followed by
    "=", or is in `backquotes`, which the dashes replace.
    """
    names = {
        text
        for name, flag in ((name, flag_values[name]) for name in flag_values)
        for text in ((name, f"no{name}") if flag.boolean else (name,))
    }

    def name(match: re.Match[str]) -> str:
        word = match["quoted"] or match[0]
        if match["quoted"]:
            return f"--{word}" if word in names else match[0]
        is_flag = word.rstrip("=") in names and ("_" in word or word.endswith("="))
        return f"--{word}" if is_flag else word

    # Not inside paths, quoted names and words that already have dashes.
    plain = r"(?<![\w/.'\"-])[a-z]\w*(?:=|(?![\w/'\"-]|\.\w))"
    return re.sub(rf"`(?P<quoted>[a-z]\w*)`|{plain}", name, message)


def check_platform() -> None:
    """Rejects Windows, which lacks the signals that stop and save a run."""
    if not hasattr(signal, "SIGHUP"):
        raise file_io.InputError(
            "this system has no SIGHUP, which Linux and macOS have: on Windows use WSL2"
        )


def check_tensorflow() -> None:
    """Rejects a TensorFlow version that is too old, without importing it."""
    from importlib import metadata  # slow to import, and only scripts need it

    versions = []
    for name in _TENSORFLOWS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            version = metadata.version(name)
            versions.append(([int(number) for number in re.findall(r"\d+", version)[:2]], version))
    # The newest counts: remains of an older distribution do no harm.
    if versions and max(versions)[0] < _MIN_TENSORFLOW:
        minimum = ".".join(map(str, _MIN_TENSORFLOW))
        raise file_io.InputError(
            f"TensorFlow {max(versions)[1]} is installed; this toolkit needs {minimum} or newer: "
            f"pip install 'tensorflow>={minimum}'"
        )


def _report_termination(state: str = "") -> int:
    """Prints what was saved at SIGTERM, or what the command does next; returns the exit status."""
    by = signals.REQUESTS.by
    print(f"ended by {by}; {state or signals.REQUESTS.remedy}", file=sys.stderr)
    return signals.STATUS


def _report_interrupt() -> int:
    """Prints what the same command does after Ctrl-C; returns the exit status."""
    print(f"interrupted; {signals.REQUESTS.remedy}", file=sys.stderr)
    return 130


def _report_lost_worker(error: Exception) -> str | None:
    """Returns a message if an error was caused by the loss of another worker, else None."""
    from albert.training import distribution

    return distribution.lost_worker(error)


def define(define_flags: Callable[[flags.FlagValues], None], flag_values: flags.FlagValues) -> None:
    """Defines a script's flags so that --help shows all of them, also those of shared groups."""
    before = set(flag_values)
    define_flags(flag_values)
    for name in set(flag_values) - before:
        flag_values.register_key_flag_for_module(sys.argv[0], flag_values[name])


def parse(argv: Sequence[str]) -> list[str]:
    """Parses the flags of a command line; returns the program and arguments that are not flags.

    Help and version end with status 0, a mistake with 1.
    """
    try:
        expanded = [argv[0], *packaged_files.expand(argv[1:])]
    except file_io.InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    if commands.VERSION_FLAG in expanded[1:]:
        print(commands.version())
        sys.exit(0)
    try:
        return flags.FLAGS(expanded)
    except flags.Error:
        return app.parse_flags_with_usage(expanded)  # prints it
    except SystemExit:  # with status 1, after the help
        sys.exit(0)


def _set_log_format(values: flags.FlagValues) -> None:
    """Sets the form of the log; a server has its own forms."""
    form = values.log_format if "log_format" in values else log_format.AUTO
    if form in log_format.FORMATS:
        log_format.use(form)


def _prepare(define_flags: Callable[[flags.FlagValues], None]) -> None:
    """Checks the system; installs handlers of signals, flags and what TensorFlow prints."""
    try:
        check_platform()
        signals.install()
        define(define_flags, flags.FLAGS)
        command_help.define()
    except file_io.InputError as error:  # the system, or defaults from the environment
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    if _SAVES in flags.FLAGS:
        signals.REQUESTS.remedy = signals.RESUMES
    tensorflow_start.install()


def run(
    main: Callable[[flags.FlagValues], Any], define_flags: Callable[[flags.FlagValues], None]
) -> None:
    """Runs a script: defines and parses its flags, and prints user errors as plain messages.

    Exit status: 0, 1 after a user error, 130 after Ctrl-C, `signals.STATUS` after SIGTERM
    and SIGHUP, `signals.READER_GONE` after a reader that has ended.
    """
    _prepare(define_flags)

    def guarded(argv: list[str]) -> int | None:
        if len(argv) > 1:
            print(f"error: not a flag: {argv[1:]}; flags look like --name=value", file=sys.stderr)
            return 1
        logging.set_verbosity(logging.INFO)
        _set_log_format(flags.FLAGS)
        try:
            check_tensorflow()
            with signals.ensure_end():
                main(flags.FLAGS)
        except (file_io.InputError, OSError) as error:  # OSError: full disk, lost network folder
            if isinstance(error, BrokenPipeError) and signals.is_reader_gone():
                raise
            print(f"error: {with_flag_names(str(error), flags.FLAGS)}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return _report_interrupt()
        except signals.Terminated as terminated:
            return _report_termination(str(terminated))
        except Exception as error:
            end = signals.root_interrupt(error)
            lost = "tensorflow" in sys.modules and _report_lost_worker(error)
            # The other workers end for the same reason.
            if end is signals.Terminated or (signals.REQUESTS.terminate and lost):
                return _report_termination()
            if end is KeyboardInterrupt:
                return _report_interrupt()
            reason = lost or requirements.missing(error)
            if not reason:
                raise
            print(f"error: {reason}", file=sys.stderr)
            return 1
        finally:
            signals.ignore()
        return 0

    with signals.end_with_reader():
        app.run(guarded, flags_parser=parse)
