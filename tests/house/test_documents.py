"""The commands, flags, links and Python of README.md and docs/ are those of the project."""

import ast
import functools
import re
import shlex

import pytest

import albert
from tests.support import command_lines, documents, sources
from tests.support.documents import blocks, lines_of, text_of
from tests.support.sources import DOORS, ROOMS, ROOT

GUIDE = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]
# Pages whose links are checked; those that are no guide are written for other ends.
PAGES = [*GUIDE, "PARITY.md", "CHANGELOG.md", "benchmarks/RESULTS.md"]
MAX_README, MAX_LINE = 220, 100
# Pages to look things up in.
WITHOUT_OPENING = {"README.md", "CONTRIBUTING.md"}
WITHOUT_OPENING |= {f"docs/{name}.md" for name in ("architecture", "glossary", "troubleshooting")}
# Options of other programs.
OTHER_OPTIONS = {
    "strict",
    "flagfile",
    "help",
    "version",
    "quick",
    "room",
    "logdir",
    "dir",
    "tag_set",
    "signature_def",
}
OTHER_OPTIONS |= {"signal", "requeue", "open"}  # of SLURM
OTHER_OPTIONS |= {"from_nothing"}  # of run_demo.sh
OTHER_OPTIONS |= {
    "data",
    "work",
    "only",
    "peer",
    "rates",
    "results",
    "steps",
    "weights",
}  # of studies in experiments/
OWN = ("albert", "benchmarks", "tests")
PROGRAMS = {"git", "pip", "cp", "python", "saved_model_cli", "tensorboard", "curl"}


def without_blocks(page):
    return re.sub(r"^```.*?^```$", "", text_of(page), flags=re.S | re.M)


COMMANDS = [
    (page, line) for page in [*GUIDE, "benchmarks/RESULTS.md"] for line in documents.commands(page)
]
SCRIPT_COMMANDS = [(page, line) for page, line in COMMANDS if line.startswith("python -m albert.")]


@functools.cache
def _flags_of(script):
    return frozenset(command_lines.define(script))


# --- commands and flags -------------------------------------------------------------------------


@pytest.mark.parametrize(("page", "command"), SCRIPT_COMMANDS)
def test_commands_are_accepted(page, command):
    """Names, types and required flags; what follows needs data and is run elsewhere."""
    script, *arguments = shlex.split(command)[2:]
    values = command_lines.define(script.removeprefix("albert."))
    assert values([script, *arguments]) == [script]


def test_other_commands_are_there():
    """Each line starts with a script of this repository or a program that is installed with it."""
    for page, command in COMMANDS:
        words = [word for word in shlex.split(command, comments=True) if "=" not in word]
        if words[0].startswith("./"):
            assert (ROOT / words[0]).stat().st_mode & 0o100, f"{page}: {words[0]} cannot be run"
        else:
            assert words[0] in PROGRAMS, f"{page}: {command}"
        if words[0] == "python" and words[1] != "-m":
            assert (ROOT / words[1]).exists(), f"{page}: there is no {words[1]}"
        if words[:2] == ["python", "-m"] and words[2].startswith("benchmarks."):
            assert _file_of(words[2]), f"{page}: there is no {words[2]}"


def test_pages_hold_commands():
    """The README shows the whole way; a page without commands would go unnoticed."""
    shown = {shlex.split(line)[2] for page, line in SCRIPT_COMMANDS if page == "README.md"}
    steps = "train_vocab create_pretraining_data run_pretraining run_classifier run_squad_v2"
    assert shown >= {f"albert.{name}" for name in f"{steps} run_race predict ask".split()}
    first_words = {line.split()[0] for page, line in COMMANDS if page == "README.md"}
    assert {"./run_demo.sh", "./run_tests.sh"} <= first_words


def test_files_named_in_commands_exist():
    for page, command in COMMANDS:
        for name in re.findall(r"configs/[\w.]+", command):
            assert (ROOT / name).exists(), f"{page}: {name}"


def test_environment_of_the_sweep_is_documented_there():
    sweeps = [line for _, line in COMMANDS if line.endswith("./run_glue.sh")]
    assert sweeps
    script = (ROOT / "run_glue.sh").read_text(encoding="utf-8")
    for command in sweeps:
        for word in shlex.split(command)[:-1]:
            assert re.search(rf"^#   {word.split('=')[0]} ", script, re.M), word


@pytest.mark.parametrize("page", GUIDE)
def test_flags_named_in_the_text_exist(page):
    known = set().union(*map(_flags_of, sources.COMMANDS)) | OTHER_OPTIONS
    known |= {f"no{name}" for name in known}
    named = set(re.findall(r"--(\w+)", text_of(page)))
    assert named <= known, named - known


@pytest.mark.parametrize("page", GUIDE)
def test_flags_follow_a_script_that_has_them(page):
    """In the text (`script --flag=…`) and in programs with omitted parts."""
    text = without_blocks(page)
    shown = re.findall(
        rf"`(?:python -m albert\.)?({'|'.join(sources.COMMANDS)}) ([^`]*--[^`]*)`", text
    )
    for block in blocks(page, "sh"):
        for line in lines_of(block):
            shown += re.findall(r"python -m albert\.(\w+)(.*)", line)
    for script, arguments in shown:
        known = _flags_of(script)
        for name in re.findall(r"--(\w+)", arguments):
            has = {name, name.removeprefix("no")} & known or name == "help"
            assert has, f"{script} has no --{name}"


# --- links --------------------------------------------------------------------------------------


@functools.cache
def anchors_of(page):
    """Anchors of the page's headings, made as GitHub makes them."""
    found = []
    for heading in re.findall(r"^#+ (.*)$", without_blocks(page), re.M):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = sum(re.sub(r"-\d+$", "", other) == anchor for other in found)
        found.append(f"{anchor}-{count}" if count else anchor)
    return found


def links_of(page):
    """(path from the root of the repository, anchor or "") of each link inside the project."""
    text = without_blocks(page)
    targets = re.findall(r"\]\((?!https?:)([^)\s]+)\)", text)
    for target in targets + re.findall(r"^\[[^]]+\]: (?!https?:)(\S+)$", text, re.M):
        path, _, anchor = target.partition("#")
        resolved = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        yield str(resolved.relative_to(ROOT)), anchor


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for path, anchor in links_of(page):
        assert (ROOT / path).exists(), f"there is no {path}"
        assert not anchor or anchor in anchors_of(path), f"{path} has no heading #{anchor}"


def test_every_page_is_reached_from_the_readme():
    reached, waiting = set(), ["README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += [path for path, _ in links_of(page) if path.endswith(".md")]
    assert reached >= set(PAGES), set(PAGES) - reached
    assert {f"docs/{path.name}" for path in (ROOT / "docs").iterdir() if path.is_file()} <= set(
        GUIDE
    )


# --- Python -------------------------------------------------------------------------------------

PROGRAMS_IN_PYTHON = [
    (page, block) for page in GUIDE for name in ("py", "python") for block in blocks(page, name)
]


def _file_of(module):
    """Source of `albert.…`; None if there is no such module."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return path if path.exists() else None


def _names_in(path):
    """Names that a module defines or imports at its top level."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    inside = (node for block in body if isinstance(block, ast.With) for node in block.body)
    for node in (*body, *inside):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            names = (name for target in node.targets for name in ast.walk(target))
            yield from (name.id for name in names if isinstance(name, ast.Name))
        else:
            yield getattr(node, "name", None)


def test_python_uses_names_that_exist():
    """In programs, `module.name` of modules that they import from the package."""
    assert len(PROGRAMS_IN_PYTHON) >= 5
    for page, program in PROGRAMS_IN_PYTHON:
        tree = ast.parse(program)
        imported = {
            alias.asname or alias.name: _file_of(f"{node.module}.{alias.name}")
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "albert"
            for alias in node.names
        }
        missing = [name for name, path in imported.items() if path is None]
        assert not missing, f"{page}: {missing}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module, name = node.value.id, node.attr
                assert module not in imported or name in _names_in(imported[module]), (
                    f"{page}: {module}.{name}"
                )


def test_names_in_the_table_of_python_exist():
    rows = [line for line in text_of("docs/python.md").splitlines() if line.startswith("| `")]
    named = [pair for row in rows for pair in re.findall(r"`(\w+)\.(\w+)`", row.split("|")[1])]
    assert len(named) >= 15
    for module, name in named:
        files = {*(ROOT / "albert").rglob(f"{module}.py")}
        files |= {*(ROOT / "albert/tasks/squad").glob(f"{module.removeprefix('squad_')}.py")}
        assert any(name in _names_in(path) for path in files), f"there is no {module}.{name}"


# --- the version --------------------------------------------------------------------------------


def test_the_version_is_the_same_in_all_files():
    (released, date), *_ = re.findall(r"^## (\d\S*) - (\S+)$", text_of("CHANGELOG.md"), re.M)
    cited = dict(re.findall(r"^(version|date-released): (\S+)$", text_of("CITATION.cff"), re.M))
    assert cited == {"version": released, "date-released": date}
    assert albert.__version__ == released


# --- form ---------------------------------------------------------------------------------------


def test_the_readme_is_short():
    assert text_of("README.md").count("\n") <= MAX_README


@pytest.mark.parametrize("page", sorted(set(GUIDE) - WITHOUT_OPENING))
def test_pages_open_with_use_and_command(page):
    """The use, one command and the needs stand before the first section."""
    opening = text_of(page).split("\n## ")[0]
    assert re.search(r"^\*\*You get\*\*.*^```(bash|py|sh).*^\*\*You need\*\*", opening, re.M | re.S)


@pytest.mark.parametrize("page", GUIDE)
def test_lines_are_short(page):
    """All but rows of tables and what programs print."""
    printed = "".join(blocks(page, ""))
    for number, line in enumerate(text_of(page).splitlines(), 1):
        free = line.startswith("|") or line in printed
        assert free or len(line) <= MAX_LINE, f"line {number}: {len(line)} characters"


def test_the_architecture_names_every_room_and_door():
    named = set(re.findall(r"\b\w+\b", text_of("docs/architecture.md")))
    assert named >= {*ROOMS, *DOORS}


def _definitions(tree, prefix=""):
    """Yields `name` and `Class.name` of all functions and classes of a module."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from _definitions(node, f"{node.name}.")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "benchmarks").glob("*/*.py")), ids=lambda path: path.stem
)
def test_benchmarks_use_names_that_exist(path):
    """Few of them are run by tests, and all use much of the package."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in OWN:
            for alias in node.names:
                found = _file_of(f"{node.module}.{alias.name}")
                assert found, f"there is no {node.module}.{alias.name}"
                modules[alias.asname or alias.name] = found
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            file = modules.get(node.value.id)
            assert not file or node.attr in _names_in(file), f"{node.value.id}.{node.attr}"


def test_functions_are_where_the_architecture_says():
    """`file: function`, with the file below the package."""
    places = re.findall(r"`([\w/]+\.py): ([\w.]+)`", text_of("docs/architecture.md"))
    assert len(places) >= 40
    for file, name in places:
        tree = ast.parse((ROOT / "albert" / file).read_text(encoding="utf-8"))
        assert name in _definitions(tree), f"there is no {name} in {file}"
