"""Tables in each form."""

from albert.experiments import text_tables

HEADER, ROWS = ("a_1", "b"), [["x|y\nz", None], [5, "1 & 2"]]


def test_tables_in_markdown_are_aligned():
    assert text_tables.write(HEADER, ROWS) == (
        "| a_1    | b     |\n| ------ | ----- |\n| x\\|y z |       |\n| 5      | 1 & 2 |\n"
    )


def test_tables_in_csv_and_latex():
    assert text_tables.write(HEADER, ROWS, "csv") == 'a_1,b\n"x|y\nz",\n5,1 & 2\n'
    lines = text_tables.write(HEADER, ROWS[1:], "latex").splitlines()
    assert lines[0] == r"\begin{tabular}{ll}" and lines[-1] == r"\end{tabular}"
    assert lines[2:5] == [r"a\_1 & b \\", r"\midrule", r"5 & 1 \& 2 \\"]


def test_numbers_and_intervals():
    assert text_tables.number(-0.00001) == "0.0000" and text_tables.number(None) == "-"
    assert text_tables.interval(0.1, 0.25) == "0.1000 to 0.2500"
    assert text_tables.interval(None, None) == "-"
