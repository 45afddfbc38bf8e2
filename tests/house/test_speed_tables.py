"""The tables of speed that `benchmarks.all` writes, and the README's rows of them."""

import pathlib
import re
import sys

import pytest

from albert.io import file_io
from benchmarks import all as all_benchmarks
from benchmarks import harness, speed_tables
from tests.support.documents import text_of

RESULTS = "benchmarks/RESULTS.md"
OLD = speed_tables.Row("a", "examples/s", 4.224, "", {"torch": 2.0}, "2025-01-02")
NEW = speed_tables.Row("b", "ms", 30.5, "ONNX Runtime", {"x, y": 61.0, "z": 1525.0}, "2026-03-04")


def page(**tables):
    texts = {kind.replace("_", "-"): table.text() for kind, table in tables.items()}
    return "top\n" + "".join(
        f"<!-- {kind} -->\n{texts.get(kind, 'Not measured yet.')}<!-- end of {kind} -->\n"
        for kind in speed_tables.KINDS
    )


# --- processors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ("fpu avx avx2 fma", "AVX2"),
        ("avx2 avx512f avx512_vnni", "AVX512"),
        ("avx2 avx512f avx512_bf16", "AVX512-BF16"),
        ("avx2 avx512f avx512_bf16 amx_bf16 amx_tile", "AMX"),
    ],
)
def test_kinds_are_told_by_flags(flags, kind):
    cpuinfo = f"processor\t: 0\nmodel name\t: An amx_bf16 name\nflags\t\t: {flags}\nbugs\t: avx2\n"
    assert speed_tables.processor_kind(cpuinfo) == kind


@pytest.mark.parametrize("cpuinfo", ["", "Features\t: fphp asimd", "flags\t\t: fpu sse2"])
def test_other_processors_have_no_table(cpuinfo):
    with pytest.raises(file_io.InputError, match="no table"):
        speed_tables.processor_kind(cpuinfo)


# --- tables ---------------------------------------------------------------------------------------


def test_a_row_shows_ratios_above_one_where_this_project_is_faster():
    assert OLD.line() == "| a | examples/s | 4.22 | torch 2.00 (2.11) | 2025-01-02 |"
    assert NEW.line() == (
        "| b | ms | 30.5 (ONNX Runtime) | x, y 61.0 (2.00); z 1,525 (50.00) | 2026-03-04 |"
    )


def test_tables_of_other_kinds_stay():
    table = speed_tables.Table("one, 2 cores; Python 3", {"a": OLD})
    before = page(AVX2=table)
    after = speed_tables.replaced(before, "AMX", speed_tables.Table("two; 1", {"b": NEW}))
    assert after == page(AVX2=table, AMX=speed_tables.Table("two; 1", {"b": NEW}))
    tables = speed_tables.read(after)
    assert list(tables) == ["AMX", "AVX2"]
    assert tables["AMX"].machine == "two; 1"
    assert tables["AMX"].rows["b"].line() == NEW.line()
    alone = speed_tables.Row("c", "ms", 3.0, "", {}, "2026-03-04")
    again = speed_tables.replaced(after, "AMX", speed_tables.Table("two", {"c": alone}))
    assert speed_tables.read(again)["AMX"].rows == {"c": alone}
    with pytest.raises(file_io.InputError, match="0 places"):
        speed_tables.replaced("no markers", "AMX", table)


def test_rows_are_replaced_by_title_and_kept_with_their_date():
    table = speed_tables.Table("one; Python 3.11", {"a": OLD, "b": NEW})
    newer = speed_tables.Row("a", "examples/s", 5.0, "", {}, "2026-09-09")
    updated = table.updated("one; Python 3.12", [newer])
    assert updated.machine == "one; Python 3.12"
    assert updated.rows == {"a": newer, "b": NEW}
    assert table.updated("two; Python 3.11", [newer]).rows == {"a": newer}


# --- from a benchmark's figures to rows -----------------------------------------------------------


def test_a_request_is_compared_within_its_precision():
    figures = {
        "albert onnxruntime float32": 50.0, "albert openvino float32": 60.0,
        "albert onnxruntime int8": 45.0, "albert openvino int8_bfloat16": 40.0,
        "transformers compile float32": 100.0, "onnxruntime int8 dynamic": 52.0,
        "openvino int8 nncf bfloat16": 41.0,
    }  # fmt: skip
    line = {"label": "32 tokens", "unit": "ms", "figures": figures}
    run = all_benchmarks.runs(bfloat16=True)["requests"]
    assert [row.line() for row in all_benchmarks.table_rows(run, [line], "today")] == [
        "| 32 tokens, base, float32 | ms | 50.0 (ONNX Runtime) | `torch.compile` 100 (2.00) "
        "| today |",
        "| 32 tokens, base, int8 | ms | 40.0 (OpenVINO, bfloat16) | ONNX Runtime, dynamic 52.0 "
        "(1.30); OpenVINO by NNCF, bfloat16 41.0 (1.02) | today |",
    ]


def test_a_step_is_one_row():
    figures = {"ours": 6.0, "transformers compile": 4.0, "keras_hub graph": 3.0}
    line = {"label": "train  float32  ", "unit": "examples/s", "figures": figures}
    run = all_benchmarks.runs(bfloat16=False)["base_train_float32"]
    (row,) = all_benchmarks.table_rows(run, [line], "today")
    assert row.line() == (
        "| training 16 x 128, base, float32 | examples/s | 6.00 | `torch.compile` 4.00 (1.50); "
        "keras-hub 3.00 (2.00) | today |"
    )


def test_missing_peers_are_refused_with_their_installation(monkeypatch):
    found = {"keras_hub": None, "tensorflow": "2.21"}
    monkeypatch.setattr(all_benchmarks, "peer_versions", lambda *_: found)
    monkeypatch.setattr(
        all_benchmarks, "FLAGS", {"keras_hub_python": type("", (), {"value": "keras/python"})}
    )
    with pytest.raises(file_io.InputError, match="keras/python -m pip install keras-hub") as error:
        all_benchmarks.check_peers(["keras_hub"])
    assert "leave keras_hub out of --peers" in str(error.value)
    with pytest.raises(file_io.InputError, match="'jax'.*there are torch"):
        all_benchmarks.check_peers(["jax"])


def test_versions_are_those_of_another_python():
    versions = all_benchmarks.peer_versions(sys.executable, ("absl", "no_such_module"))
    assert versions["no_such_module"] is None and versions["absl"][0].isdigit()
    with pytest.raises(file_io.InputError, match="does not run"):
        all_benchmarks.peer_versions("/no/python", ("absl",))


def test_figures_are_recorded_for_the_table(tmp_path, monkeypatch):
    path = tmp_path / "figures.jsonl"
    monkeypatch.setattr(harness.flags, "FLAGS", type("", (), {"figures_file": str(path)}))
    harness.show("train", {"ours": 2.0, "torch": 1.0})
    assert path.read_text() == (
        '{"label": "train", "unit": "examples/s", "figures": {"ours": 2.0, "torch": 1.0}}\n'
    )


# --- the pages ------------------------------------------------------------------------------------


def test_results_have_a_place_for_every_kind():
    for kind in speed_tables.KINDS:
        speed_tables.replaced(text_of(RESULTS), kind, speed_tables.Table())


def test_rows_of_the_readme_come_from_all_tables():
    training = {
        title: speed_tables.Row(title, "examples/s", 28.0, "", {"transformers": 7.0}, "today")
        for title in (speed_tables.SST2, speed_tables.SST2_BERT)
    }
    padded = speed_tables.PADDED
    assert all_benchmarks.runs(False)["base_train_float32"].title == padded
    training[padded] = speed_tables.Row(padded, "", 6.0, "", {"`torch.compile`": 4.0}, "")
    answers = {
        title: speed_tables.Row(title, "ms", 30.4, "x", {"`torch.compile`": 60.0}, "today")
        for title in (speed_tables.ONE_TEXT, speed_tables.ONE_TEXT_INT8)
    }
    tables = {"AMX": speed_tables.Table("m", training | answers)}
    tables["AVX2"] = speed_tables.Table("n", answers)
    rows = speed_tables.readme_rows(tables)
    assert "base model [1.5 (AMX)](" in rows["Fast training"]
    assert "`torch.compile`), 4.0 (AMX) on the texts" in rows["Fast training"]
    assert rows["Fast training"].endswith("BERT of 6 x 384 there 4.0 (AMX)")
    assert "[30 (AMX), 30 (AVX2)](" in rows["Fast answers"]
    assert "`torch.compile` 60 (AMX), 60 (AVX2); in int8 30 (AMX)" in rows["Fast answers"]
    readme = "| a | b |\n| **Fast answers** | old |\n| **Other** | c |\n"
    assert speed_tables.with_readme_rows(readme, tables) == (
        f"| a | b |\n| **Fast answers** | {rows['Fast answers']} |\n| **Other** | c |\n"
    )


def test_the_readme_quotes_the_tables():
    """`benchmarks.all` writes both."""
    readme = text_of("README.md")
    assert speed_tables.with_readme_rows(readme, speed_tables.read(text_of(RESULTS))) == readme
    for name in ("Fast training", "Fast answers"):
        assert re.search(rf"^\| \*\*{name}\*\* \|", readme, re.M)


@pytest.mark.parametrize("name", all_benchmarks.runs(bfloat16=True))
def test_runs_name_benchmarks_and_flags_that_exist(name):
    run = all_benchmarks.runs(bfloat16=True)[name]
    path = pathlib.Path("benchmarks", *run.module.split(".")).with_suffix(".py")
    source = text_of(str(path))
    for flag in (*run.flags, *(["model_dir"] if run.is_bert else [])):
        assert f'"{flag}"' in source, flag
