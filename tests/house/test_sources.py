"""The rules of the code base, checked on its sources: rooms, imports, file access, sizes."""

import ast
import collections
import functools
import re
import sys

from albert.cli import app
from tests.support import processes
from tests.support.sources import (
    COMMANDS,
    DOORS,
    MODULES,
    PACKAGE,
    PLAIN,
    PLAIN_MODULES,
    ROOMS,
    ROOT,
    nodes,
    nodes_of,
    parsed,
    path_of,
    room_of,
    tree_of,
)

MAX_FUNCTION, MAX_MAIN = 60, 40

# Calls that touch files; os.path functions that only handle names are free.
FILE_CALLS = re.compile(
    r"(open|io\.open|codecs\.open|os\.(open|fdopen|listdir|scandir|walk|rename|renames|replace"
    r"|remove|unlink|rmdir|mkdir|makedirs|stat|truncate|symlink|link)"
    r"|os\.path\.(exists|isfile|isdir|islink|getsize|getmtime)"
    r"|tf\.io\.gfile\..*|tf\.gfile\..*|tf\.io\.(read_file|write_file|matching_files)"
    r"|np\.(load|save|savez|savez_compressed|loadtxt|savetxt|fromfile))"
)
FILE_MODULES = {"shutil", "glob", "tempfile", "pathlib", "fileinput"}
# Random functions that share one hidden state; generators that carry their own are free.
RANDOM_STATE = re.compile(
    r"random\.(?!Random$)\w+"
    r"|np\.random\.(?!default_rng$|Generator$|SeedSequence$|PCG64$|Philox$|RandomState$)\w+"
    r"|tf\.random\.(?!experimental\.(stateless|index)|stateless|split$|fold_in$)\w[\w.]*"
)
# Without a seed a model in training has to invent one; everything else passes seeds down.
ALLOWED_RANDOM = {("model.layers", "tf.random.uniform")}
CLI = {name for name in MODULES if room_of(name) == "cli"}
OWN_GENERATORS = re.compile(
    r"random\.Random|np\.random\.(default_rng|Generator|RandomState)"
    r"|tf\.random\.(experimental\.)?Generator.*"
)


def for_each(names):
    """Makes one test of a check of each name: thousands of tests would take longer to report."""

    def decorate(check):
        def test():
            for name in names:
                check(name)

        test.__doc__ = check.__doc__
        return test

    return decorate


def imports_of(path, at_run_time=False):
    """(dotted module, imported names) of every import of a file, however deep it stands.

    With `at_run_time` without those that only type checkers read.
    """
    unread = set()
    for block in parsed(path).body if at_run_time else ():
        if isinstance(block, ast.If) and dotted(block.test) == "TYPE_CHECKING":
            unread.update(block.body)
    for node in nodes(path):
        if node in unread:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, []
        elif isinstance(node, ast.ImportFrom):
            yield node.module, [alias.name for alias in node.names]


def own_imports(name):
    """Modules of the package that a module imports, dotted below the package."""
    found = set()
    for module, names in imports_of(path_of(name)):
        if module == "albert" or module.startswith("albert."):
            base = module.removeprefix("albert").removeprefix(".")
            dotted_names = [f"{base}.{other}".removeprefix(".") for other in names]
            found.update(other if other in MODULES else base for other in dotted_names)
    return found - {""}


def dotted(node):
    """`a.b.c` of an attribute chain, else ""."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        left = dotted(node.value)
        return left and f"{left}.{node.attr}"
    return ""


def functions_of(name):
    return [node for node in nodes_of(name) if isinstance(node, ast.FunctionDef)]


def length(node):
    return node.end_lineno - node.lineno + 1


# --- untrusted files --------------------------------------------------------------------------

# What would run what a file says.
_RUNS_FILES = "load_model unsafe_load yaml torch joblib dill marshal shelve eval exec".split()


@for_each(MODULES)
def test_nothing_that_is_read_is_run(name):
    """See SECURITY.md; `pickle` is for pipes between processes of one program."""
    for node in nodes_of(name):
        called = dotted(node.func) or ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if called == "yaml.dump":
            continue  # writes
        assert called.split(".")[0] not in _RUNS_FILES and called.split(".")[-1] != "load_model"
        assert not called.endswith(("saved_model.load", "hub.load", "np.load")), called
        assert called != "pickle.load" or ast.unparse(node.args[0]).split(".")[0] in (
            *("process", "sys"),
        )


# --- imports ----------------------------------------------------------------------------------


def test_every_room_has_a_sentence_and_its_public_list_and_imports_nothing():
    """Workers and ``--help`` import rooms, and must not load TensorFlow with them."""
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set(ROOMS)
    for path in PACKAGE.glob("*/**/__init__.py"):
        tree = parsed(path)
        room = ".".join(path.parent.relative_to(PACKAGE).parts)
        public = [n for n in tree.body if isinstance(n, ast.Assign)]
        assert ast.get_docstring(tree) and not list(imports_of(path)), room
        assert len(tree.body) == 1 + len(public), room
        for name in ast.literal_eval(public[0].value) if public else ():
            assert f"{room}.{name}" in MODULES, f"{room} lists {name}, which does not exist"


def test_what_rooms_share_is_public():
    """Other rooms import only what a room's `__init__` lists; commands import everything."""
    for name in MODULES:
        for other in own_imports(name) if room_of(name) else ():
            if room_of(other) != room_of(name):
                room, _, module = other.rpartition(".")
                source = PACKAGE.joinpath(*room.split("."), "__init__.py").read_text("utf-8")
                public = ast.literal_eval(ast.parse(source).body[1].value)
                assert module in public, f"{name} imports {other}, which is private"


@for_each(DOORS)
def test_doors_only_import(door):
    """They carry names that users import; the code is in the rooms."""
    tree = ast.parse((PACKAGE / f"{door}.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    *body, names = tree.body[1:]
    if isinstance(body[-1], ast.With):  # that says what to install
        body[-1:] = body[-1].body
    assert {type(node) for node in body} == {ast.ImportFrom}
    assert ast.unparse(names).startswith("__all__")


def test_plain_modules_do_not_name_tensorflow():
    assert set(PLAIN) <= set(MODULES)
    free = {"io.file_io", "model.hub_modules", *COMMANDS, *CLI}
    for name in set(PLAIN_MODULES) - free - {name for name in PLAIN if room_of(name) == "tasks"}:
        modules = {
            module.split(".")[0] for module, _ in imports_of(path_of(name), at_run_time=True)
        }
        assert not modules & {"tensorflow", "tensorflow_hub", "tf_keras", "keras"}, name


def test_plain_modules_and_scripts_start_without_tensorflow():
    """Also through what they import; one process, asked after each import."""
    names = PLAIN_MODULES
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module('albert.' + name)\n"
        "    heavy = {'tensorflow', 'sklearn', 'sentencepiece', 'tqdm'} & set(sys.modules)\n"
        "    if heavy: sys.exit(f'importing albert.{name} imports {heavy}')\n"
    )
    result = processes.run([sys.executable, "-c", program, *names], cwd=ROOT)
    assert result.returncode == 0, result.stderr


def test_tests_share_modules_that_are_no_tests():
    """A test file can be renamed, split or run alone; shared code is next to them."""
    for path in (ROOT / "tests").rglob("*.py"):
        for module, names in imports_of(path):
            parts = [*module.split("."), *(names if module == "tests" else [])]
            found = [part for part in parts if part.startswith("test_")]
            assert not found, f"tests/{path.name} imports {found[0]}"


def test_tests_replace_no_private_names():
    """Values that a test has to set are parameters or public constants."""
    for path in (ROOT / "tests").rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr":
                texts = [n.value for n in node.args if isinstance(n, ast.Constant)]
                names = [text.split(".")[-1] for text in texts if isinstance(text, str)]
                private = [name for name in names if re.match(r"_(?!_)", name)]
                assert not private, f"tests/{path.name} line {node.lineno}: {private[0]}"


# --- files, chance, flags -----------------------------------------------------------------------


@for_each([n for n in MODULES if room_of(n) not in ("", "cli")])
def test_libraries_speak_of_parameters_not_of_flags(name):
    if name in ("tasks.kinds", "experiments.predictions", "training.run_facts"):
        return  # name commands of other scripts, or of git, with their flags
    texts = [n.value for n in nodes_of(name) if isinstance(n, ast.Constant)]
    found = [text for text in texts if isinstance(text, str) and re.search(r"(?<!-)--[a-z]", text)]
    assert not found, f"{name}: a script adds the dashes, see command_line.with_flag_names"


@for_each(MODULES)
def test_no_function_is_rewritten_by_autograph(name):
    """Autograph takes longer than tracing, and no code here needs it."""
    calls = [node for node in nodes_of(name) if isinstance(node, ast.Call)]
    compiled = [call for call in calls if dotted(call.func) == "tf.function"]
    named = [node for node in nodes_of(name) if dotted(node) == "tf.function"]
    assert len(compiled) == len(named), f"{name}: tf.function without autograph=False"
    for call in compiled:
        given = {argument.arg: ast.unparse(argument.value) for argument in call.keywords}
        assert given.get("autograph") == "False", f"{name} line {call.lineno}"


@for_each([name for name in MODULES if name != "io.file_io"])
def test_files_are_touched_only_in_file_io(name):
    modules = {module.split(".")[0] for module, _ in imports_of(path_of(name))}
    assert not modules & FILE_MODULES, f"{name} imports {modules & FILE_MODULES}; use file_io"
    for node in nodes_of(name):
        if isinstance(node, ast.Call):
            call = dotted(node.func)
            assert not FILE_CALLS.fullmatch(call), f"{name} line {node.lineno}: {call}; use file_io"


@for_each(MODULES)
def test_only_training_starts_with_parts_that_the_weights_lack(name):
    for node in nodes_of(name):
        if isinstance(node, ast.Call) and dotted(node.func) == "checkpoints.restore":
            given = {argument.arg: ast.unparse(argument.value) for argument in node.keywords}
            trains = name in ("training.stages", "training.frozen_encoder") and "view" in given
            assert trains or given.get("allow_new_heads") == "False", f"{name} line {node.lineno}"


@for_each(MODULES)
def test_no_hidden_random_state(name):
    for node in nodes_of(name):
        if isinstance(node, ast.Call):
            call = dotted(node.func)
            where = f"{name} line {node.lineno}: {call}"
            hidden = RANDOM_STATE.fullmatch(call) and (name, call) not in ALLOWED_RANDOM
            assert not hidden, f"{where} has a hidden state"
    for statement in tree_of(name).body:
        if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            for node in ast.walk(statement):
                made = isinstance(node, ast.Call) and OWN_GENERATORS.fullmatch(dotted(node.func))
                assert not made, f"{name} line {node.lineno}: a generator for the whole module"


def _attributes_of_settings(script):
    """Attributes that a command and the modules of `cli` behind it read, of any object."""
    names, waiting = {script}, [script]
    while waiting:
        found = CLI & own_imports(waiting.pop()) - names
        names |= found
        waiting += found
    found = [node for name in names - {"cli.options"} for node in nodes_of(name)]
    listed = (node for node in found if isinstance(node, (ast.Tuple, ast.List)))
    strings = {e.value for node in listed for e in node.elts if isinstance(e, ast.Constant)}
    return strings | {node.attr for node in found if isinstance(node, ast.Attribute)}


@for_each(COMMANDS)
def test_every_flag_is_read(script):
    import importlib

    from albert.cli import options

    module = importlib.import_module(f"albert.{script}")
    unread = set(options.names(module.Settings)) - _attributes_of_settings(script)
    assert not unread, f"{script} defines flags that nothing reads: {sorted(unread)}"


# --- sizes and names ----------------------------------------------------------------------------


@for_each(MODULES)
def test_sizes(name):
    for function in functions_of(name):
        if function.name != "define_flags":  # a table, however long
            limit = MAX_MAIN if name in COMMANDS and function.name == "main" else MAX_FUNCTION
            assert length(function) <= limit, f"{name}.{function.name}: {length(function)} lines"


def test_arguments_are_written_one_by_one():
    for folder in ("albert", "benchmarks", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in nodes(path):
                if isinstance(node, ast.Call):
                    spread = [a.value for a in node.args if isinstance(a, ast.Starred)]
                    display = any(isinstance(a, (ast.Tuple, ast.List)) for a in spread)
                    assert not display, f"{path}:{node.lineno}"


@for_each(COMMANDS)
def test_scripts_define_only_settings_and_a_command_and_share_one_form(name):
    classes = [node for node in nodes_of(name) if isinstance(node, ast.ClassDef)]
    others = [node for node in classes if node.name != "Settings"]
    assert [ast.unparse(base) for node in others for base in node.bases] in (
        [],
        ["fine_tuning.Command"],
    )
    names = {function.name for function in functions_of(name)}
    assert {"define_flags", "main"} <= names
    assert "app.run(main, define_flags)" in ast.unparse(tree_of(name).body[-1])


@for_each(MODULES)
def test_names_say_what_is_inside(name):
    """The three `…_utils` of the reference are doors."""
    assert not re.search(r"utils?$|helpers?$|misc|common$", name)


# A name in backquotes with a dot, such as `results.Block` or `Engine.train`.
_REFERENCE = re.compile(r"(?<!`)`((?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*)`(?!`)")


def _bound_names(node):
    """Names that a module or class binds, with the attributes that methods give `self`."""
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield child.name
        elif isinstance(child, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in child.names)
        elif isinstance(child, ast.If | ast.With | ast.Try):
            yield from _bound_names(child)
        else:
            yield from (name.id for name in ast.walk(child) if isinstance(name, ast.Name))
        for part in ast.walk(child) if isinstance(node, ast.ClassDef) else ():
            if isinstance(part, ast.Attribute) and dotted(part.value) == "self":
                yield part.attr


@functools.cache
def _names_in_package():
    """{module or class, without the modules that it is in: names in it}; classes with bases."""
    names, bases = collections.defaultdict(set), collections.defaultdict(set)
    for module in (*MODULES, *DOORS):
        names[module.rpartition(".")[2]].update(_bound_names(tree_of(module)))
        for node in nodes_of(module):
            if isinstance(node, ast.ClassDef):
                names[node.name].update(_bound_names(node))
                bases[node.name].update(dotted(base).rpartition(".")[2] for base in node.bases)
    for _ in range(5):  # levels of inheritance
        for name, parents in bases.items():
            names[name].update(*(names[parent] for parent in parents if parent in names))
    return names


@for_each(MODULES)
def test_names_in_docstrings_exist(name):
    names, aliases = _names_in_package(), {}
    for node in nodes_of(name):
        if isinstance(node, ast.ImportFrom):
            aliases |= {alias.asname: alias.name for alias in node.names if alias.asname}
    for reference in _REFERENCE.findall(path_of(name).read_text(encoding="utf-8")):
        owner, *parts = reference.removeprefix("albert.").split(".")
        if owner in ROOMS and len(parts) > 1:
            owner, *parts = parts
        owner = aliases.get(owner, owner)
        for part in parts if owner in names else ():
            assert part in names[owner], f"albert.{name}: there is no `{reference}`"
            owner = part
            if owner not in names:
                break


@functools.cache
def _texts_of_tests():
    return [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]


@for_each(MODULES)
def test_every_module_is_tested(name):
    """By a test file of its name or by one that imports it."""
    room, _, module = name.rpartition(".")
    if any((ROOT / "tests").glob(f"{room_of(name) or '*'}/test_{module}.py")):
        return
    package = re.escape(f"albert.{room}".rstrip("."))
    imported = re.compile(
        rf"^ *from {package} import ([^\n(]*|\([^)]*)\b{module}\b|albert\.{re.escape(name)}\b", re.M
    )
    assert any(map(imported.search, _texts_of_tests())), f"no test imports albert.{name}"


# --- requirements -------------------------------------------------------------------------------

# Import name -> distribution, where they differ.
DISTRIBUTIONS = {
    "prometheus_client": "prometheus-client",
    "absl": "absl-py",
    "google": "protobuf",
    "grpc": "grpcio",
    "sklearn": "scikit-learn",
    "tensorflow_hub": "tensorflow-hub",
    "tensorflow_text": "tensorflow-text",
    "apache_beam": "apache-beam",
    "yaml": "pyyaml",
    "mlflow": "mlflow-skinny",
}
# Imported where TensorFlow is, which brings them.
BROUGHT = {"grpcio", "protobuf"}


def _setup_lists():
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    names = ("REQUIREMENTS", "LIGHT", "EXTRAS", "LIGHT_EXTRAS")
    found = [node for node in tree.body if isinstance(node, ast.Assign)]
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in found
        if node.targets[0].id in names
    }


def _names(requirements):
    return {re.match(r"[\w.-]+", requirement).group().lower() for requirement in requirements}


def _third_party(folder):
    """Distributions that the sources of a folder import."""
    found = set()
    for path in folder.rglob("*.py"):
        if "testdata" in path.parts:  # run by other interpreters
            continue
        for module, _ in imports_of(path):
            top = module.split(".")[0]
            if top not in sys.stdlib_module_names and top not in ("albert", "benchmarks", "tests"):
                found.add(DISTRIBUTIONS.get(top, top))
    return found


def test_requirements_agree_with_setup():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").split("\n")
    assert [line for line in lines if line] == _setup_lists()["REQUIREMENTS"]


def test_the_oldest_tensorflow_is_the_same_everywhere():
    """In what is installed, in what scripts refuse, in what they print and in what is tested."""
    lists = _setup_lists()
    every = [
        *lists["REQUIREMENTS"],
        *(name for extra in lists["EXTRAS"].values() for name in extra),
    ]
    floors = {r.split(">=")[1] for r in every if re.match(r"tensorflow(\[.*\])?>=", r)}
    (floor,) = floors
    assert floor == ".".join(map(str, app._MIN_TENSORFLOW))
    assert f"TensorFlow {floor} and later" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f'print("{floor}"' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_requirements_are_what_the_code_imports():
    lists = _setup_lists()
    needed = _third_party(PACKAGE)
    extras = "hub text wordpiece plots sweep stats corpus beam onnx serve trackers".split()
    optional = _names(name for extra in extras for name in lists["EXTRAS"][extra])
    assert needed - optional - BROUGHT == _names(lists["REQUIREMENTS"])
    assert set(lists["LIGHT"]) <= _names(lists["REQUIREMENTS"])
    assert set(lists["LIGHT_EXTRAS"]) <= set(lists["EXTRAS"])


def test_dev_extra_is_what_the_tests_import():
    lists = _setup_lists()
    there = _names(lists["REQUIREMENTS"] + lists["EXTRAS"]["dev"]) | BROUGHT
    assert _third_party(ROOT / "tests") <= there


# --- documents ----------------------------------------------------------------------------------


def _test_names():
    """`room/test_x.py::test_y` of every test; a parameter or class does not count."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        file = path.relative_to(ROOT / "tests").as_posix()
        for name in re.findall(r"^ *def (test_\w+)\(", path.read_text(encoding="utf-8"), re.M):
            yield f"{file}::{name}"


def test_parity_names_tests_that_exist():
    """Each section has a table of rows, and a folded one with the tests of each row."""
    known = set(_test_names())
    count = 0
    for section in re.split(r"(?m)^## ", (ROOT / "PARITY.md").read_text(encoding="utf-8"))[1:]:
        lines = section.splitlines()
        rows = [line for line in lines if re.match(r"\| (kept|fixed|changed)", line)]
        tests = [line.strip("| ").split(" | ") for line in lines if re.match(r"\| \d+ \|", line)]
        assert [number for number, _ in tests] == [str(n + 1) for n in range(len(rows))], section
        for n, row in enumerate(rows, 1):
            cells = row.strip("| ").split(" | ")
            assert len(cells) == 3 and cells[0].split()[1] == str(n), row
        for _, cell in tests:
            named = re.findall(r"`(\w+/test_\w+\.py::\w+)`", cell)
            assert named and not set(named) - known, f"not there: {set(named) - known}"
        count += len(rows)
    assert count > 40
