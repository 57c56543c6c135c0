"""Reading and writing tables: what is understood, and what each refusal says."""

import datetime as dt
import gzip
import io
import os
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from rnade.exceptions import TableError
from rnade.tables import (
    NOT_CHOSEN,
    as_marks,
    check_destination,
    read_frame,
    read_table,
    rows_of,
    table_format,
    write_table,
)


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    """Work in an empty folder, so that messages hold the bare file name."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def read(in_folder):
    """Read a table from the text or bytes of a file."""

    def read(content, *args, name="t.csv", **kwargs):
        data = content.encode() if isinstance(content, str) else content
        (in_folder / name).write_bytes(data)
        return read_table(name, *args, **kwargs)

    return read


def message(read, *args, **kwargs):
    with pytest.raises(TableError) as caught:
        read(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Each is the table ((1.5, 2), (3, 4.25)) under the names a and b.
DIALECTS = {
    "comma": "a,b\n1.5,2\n3,4.25\n",
    "semicolon": "a;b\n1.5;2\n3;4.25\n",
    "tab": "a\tb\n1.5\t2\n3\t4.25\n",
    "pipe": "a|b\n1.5|2\n3|4.25\n",
    "blanks": "  a   b\n 1.5  2\n 3    4.25  \n",
    "blanks and tabs": "a \t b\n1.5\t 2\n3 4.25\n",
    "quoted blanks": '"a"  b\n1.5  2\n3 "4.25"\n',
    "decimal comma": "a;b\n1,5;2\n3;4,25\n",
    "decimal comma, tabs": "a\tb\n1,5\t2\n3\t4,25\n",
    "decimal comma, blanks": "a b\n1,5 2\n3 4,25\n",
    "quotes": '"a","b"\n"1.5","2"\n"3","4.25"\n',
    "spaces after commas": "a, b\n1.5, 2\n3, 4.25\n",
    "carriage returns": "a,b\r\n1.5,2\r\n3,4.25\r\n",
    "old Mac": "a,b\r1.5,2\r3,4.25\r",
    "no final newline": "a,b\n1.5,2\n3,4.25",
    "blank lines": "\n\na,b\n\n1.5,2\n\n3,4.25\n\n\n",
    "lines of blanks": "a,b\n1.5,2\n   \n3,4.25\n  \n",
    "a line of blanks first": "   \na,b\n1.5,2\n3,4.25\n",
    "lines of blanks, old Mac": "a,b\r1.5,2\r   \r3,4.25\r",
    "byte order mark": "\ufeffa,b\n1.5,2\n3,4.25\n",
    "UTF-16": "a,b\n1.5,2\n3,4.25\n".encode("utf-16"),
    "gzip": gzip.compress(b"a,b\n1.5,2\n3,4.25\n"),
    "exponents and signs": "a,b\n+15e-1,2.\n3,4.25E+00\n",
    "padded": "a,b\n  1.5 , 2\n3,  4.25 \n",
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_dialects_are_found_out(read, dialect):
    table = read(DIALECTS[dialect])
    assert table.names == ("a", "b")
    assert table.has_header
    np.testing.assert_array_equal(table.values, [[1.5, 2.0], [3.0, 4.25]])
    assert table.values.dtype == np.float64
    assert table.left_out == {}
    assert table.dropped_rows == 0
    np.testing.assert_array_equal(table.rows, [1, 2])


@pytest.mark.parametrize(
    ("said", "content"),
    [
        ("tab", "a\tb\n1\t2\n"),
        ("\\t", "a\tb\n1\t2\n"),
        (":", "a:b\n1:2\n"),
        ("blank", "a b\n1 2\n"),
    ],
)
def test_separator_can_be_said(read, said, content):
    np.testing.assert_array_equal(read(content, separator=said).values, [[1, 2]])


def test_unknown_separator(read):
    assert message(read, "a,b\n1,2\n", separator="::") == (
        "Expected a separator of one character, or one of tab, comma, semicolon, pipe, blank; "
        "got '::'."
    )


def test_comma_file_with_blanks_and_semicolons_in_text(read):
    table = read("name,n,m\nNew York; east,1,2\nLos Angeles; west,3,4\n")
    assert table.names == ("n", "m")
    assert table.left_out == {"name": "text (such as 'New York; east')"}


@pytest.mark.parametrize(
    "content",
    [
        "name;city;amount\nAnn;Bonn;1.234,50\nBo;Rome;2.500,75\n",
        "name;city;amount\nAnn;Bonn;1,234.50\nBo;Rome;2,500.75\n",
    ],
)
def test_commas_in_amounts_do_not_separate(read, content):
    """Below a header with semicolons, a comma in each last cell makes more cells numbers."""
    table = read(content)
    assert table.names == ("amount",)
    np.testing.assert_array_equal(table.values, [[1234.5], [2500.75]])


def test_one_column(read):
    table = read("fixed acidity\n7.5\n8\n\n")
    assert table.names == ("fixed acidity",)
    np.testing.assert_array_equal(table.values, [[7.5], [8.0]])


def test_blank_line_in_one_column_is_a_missing_cell(read):
    assert "1 missing cell, the first in line 3," in message(read, "a\n1\n\n3\n")


def test_header_is_found_missing(read):
    table = read("1.5,2,red\n3,4,blue\n")
    assert not table.has_header
    assert table.names == ("x1", "x2")
    assert table.left_out == {"x3": "text (such as 'red')"}


@pytest.mark.parametrize(
    ("header", "names", "n_rows"), [(True, ("2019", "2020"), 1), (False, ("x1", "x2"), 2)]
)
def test_header_can_be_forced(read, header, names, n_rows):
    table = read("2019,2020\n1,2\n", header=header)
    assert table.names == names
    assert len(table.values) == n_rows


def test_header_in_doubt_is_no_header(read):
    assert "'id' is not a number; if this line names the columns, pass --header" in message(
        read, "id,2019\n1,2\n3,4\n"
    )


def test_decimal_commas_are_told_from_separators(read):
    table = read("1,5 2,5 3,5\n4,5 5,5 6,5\n")
    np.testing.assert_array_equal(table.values, [[1.5, 2.5, 3.5], [4.5, 5.5, 6.5]])


def test_names_asked_of_a_file_without_a_header(read):
    assert message(read, "1,2\n3,4\n", ["a"]) == (
        "t.csv has no column 'a'; it has no header, so its columns are 'x1', 'x2'."
    )


def test_unnamed_columns_are_called_by_position(read):
    assert read(",a\n1,2\n3,4\n").names == ("x1", "a")


def test_names_outside_ascii_survive_windows_text(read):
    assert read("größe,b\n1,2\n".encode("cp1252")).names == ("größe", "b")


def test_quoted_line_breaks(read):
    table = read('a,"note\nmore",b\n1,"x\ny",2\n3,z,4\n')
    assert table.names == ("a", "b")
    np.testing.assert_array_equal(table.values, [[1, 2], [3, 4]])


def test_quoted_line_breaks_across_blocks(read, monkeypatch):
    monkeypatch.setattr("rnade.tables.delimited._BLOCK_BYTES", 64)
    table = read("a,note\n" + '1,"x\ny\nz"\n' * 50)
    assert table.values.shape == (50, 1)


def test_standard_input(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"a,b\n1,2\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    table = read_table("-")
    assert table.source == "standard input"
    np.testing.assert_array_equal(table.values, [[1, 2]])


def test_kinds_of_columns(read):
    table = read(
        "whole,real,flag,Flag,day,time,other day,word,none\n"
        "1,1.5,true, TRUE,2020-01-31,12:30,31/1/2020,red,\n"
        "2,2.5,false,False,2020-02-01,12:31,1/2/2020,blue,NA\n"
    )
    assert table.names == ("whole", "real", "flag", "Flag")
    np.testing.assert_array_equal(table.values, [[1, 1.5, 1, 1], [2, 2.5, 0, 0]])
    assert table.left_out == {
        "day": "dates",
        "time": "times",
        "other day": "dates",
        "word": "text (such as 'red')",
        "none": "empty",
    }


def test_constant_columns_are_left_out_on_request(read):
    content = "a,b\n1,7\n2,7\n"
    assert read(content).names == ("a", "b")
    table = read(content, constant="leave out")
    assert table.names == ("a",)
    assert table.left_out == {"b": "constant (7 in every row)"}


def test_one_row_has_no_constant_columns(read):
    assert read("a,b\n1,2\n", constant="leave out").names == ("a", "b")


@pytest.mark.parametrize(
    "spelling", ["", " ", "NA", " NA", "NaN", "nan", "null", "NULL", "None", "N/A", "?", "-", '""']
)
def test_missing_cells(read, spelling):
    content = f"a,b\n1,2\n3,{spelling}\n{spelling},4\n5,6\n"
    assert message(read, content) == (
        "t.csv has 2 missing cells, the first in line 3, column 'b'; fix them, or leave such "
        "rows out with --missing drop."
    )
    table = read(content, missing="drop")
    np.testing.assert_array_equal(table.values, [[1, 2], [5, 6]])
    assert table.dropped_rows == 2
    np.testing.assert_array_equal(table.rows, [1, 4])


@pytest.mark.parametrize("spelling", ["inf", "-inf", "Infinity", "1e400"])
def test_infinite_cells(read, spelling):
    content = f"a,b\n1,2\n3,{spelling}\n"
    assert message(read, content).startswith("t.csv has 1 infinite cell, the first in line 3,")
    assert read(content, missing="drop").dropped_rows == 1


def test_missing_and_infinite_cells(read):
    assert message(read, "a,b\n1,2\n3,inf\n,4\n").startswith(
        "t.csv has 1 missing and 1 infinite cells, the first in line 3, column 'b';"
    )


def test_lines_are_those_of_the_file(read):
    """Blank lines, lines of blanks and quoted line breaks all count, as in an editor."""
    content = '\na,note,b\n\n1,"x\ny",2\n   \n3,"z",\n'
    assert "the first in line 7, column 'b'" in message(read, content)


def test_missing_cells_everywhere(read):
    content = "a,b,c\n1,,\n2,3,\n,4,5\n"
    assert message(read, content, missing="drop") == (
        "t.csv: no row is left, each has a missing cell (most in column 'c')."
    )


def test_stray_word(read):
    assert message(read, "a,b\n1,2\n3,4\n5,six\n") == (
        "t.csv: line 4, column 'b': 'six' is not a number, as most of the column is; fix the "
        "cell or leave the column out."
    )


def test_stray_word_in_a_first_line_that_may_be_a_header(read):
    assert message(read, "1,2,x\n3,4,5\n6,7,8\n") == (
        "t.csv: line 1, column 'x3': 'x' is not a number; if this line names the columns, pass "
        "--header."
    )


def test_stray_word_is_told_from_text_at_half(read):
    assert "'x' is not a number" in message(read, "a,b\n1,1\n2,2\n3,x\n4,y\n")
    assert read("a,b\n1,1\n2,z\n3,x\n4,y\n").left_out == {"b": "text (such as 'z')"}


def test_stray_word_in_a_column_not_chosen_is_no_error(read):
    content = "a,b\n1,2\n3,4\n5,six\n"
    assert read(content, exclude=["b"]).names == ("a",)
    assert read(content, ["a"]).left_out == {"b": NOT_CHOSEN}


EITHER = "pass --decimal , if its comma marks decimals, or --decimal . if it marks thousands."


@pytest.mark.parametrize(
    ("content", "word", "advice"),
    [
        ("a;b\n1,5;2.5\n2,5;3.5\n", "2.5", " with a decimal comma; fix the cell, or pass"),
        ('a,b\n1,"1,234"\n2,"5,678"\n', "1,234", EITHER),
        ("a\tb\n1\t1,234\n2\t5,678\n", "1,234", EITHER),
        (
            'a,b\n1,"1,5"\n2,"2,5"\n',
            "1,5",
            " as it stands; pass --decimal , if its comma marks decimals.",
        ),
        (
            "a\tb\n1\t1,234.5\n2\t1.234,5\n",
            "1,234.5",
            " with a decimal comma; fix the cell, or pass --decimal .",
        ),
    ],
)
def test_doubtful_decimal_marks_are_errors(read, content, word, advice):
    """A comma may stand for thousands: better an error than numbers a thousand times off."""
    text = message(read, content)
    assert f"line 2, column 'b': '{word}' is not a number" in text
    assert advice in text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('a,b\n1,"1,234.5"\n2,"5,678"\n3,12\n', [1234.5, 5678, 12]),
        ('a,b\n1,"1,234,567"\n2,"-5,678"\n3,0\n', [1234567, -5678, 0]),
        ('a,b\n1.5,"1,234"\n2.5,"5,678"\n3,9\n', [1234, 5678, 9]),  # a has decimal points
        ("a;b\n1;1.234,5\n2;5.678\n3;12\n", [1234.5, 5678, 12]),
        ("a;b\n1,5;1.234.567\n2,5;-5.678\n3;0,25\n", [1234567, -5678, 0.25]),
        ("a\tb\n1\t1.234,5\n2\t0,5\n3\t+7\n", [1234.5, 0.5, 7]),
        ("a;b\n1;1 234,5\n2;5\u00a0678\n3;0,5\n", [1234.5, 5678, 0.5]),
        ("a;b\n1;1'234.5\n2;5'678\n3;0.5\n", [1234.5, 5678, 0.5]),
    ],
)
def test_thousands_marks(read, content, expected):
    table = read(content)
    np.testing.assert_array_equal(table.values[:, 1], expected)
    assert table.notes == []


@pytest.mark.parametrize(("decimal", "factor"), [(".", 1.0), (",", 1e-3)])
@pytest.mark.parametrize("content", ['a,b\n1,"1,234"\n2,"5,678"\n', "a;b\n1;1,234\n2;5,678\n"])
def test_the_decimal_point_can_be_given(read, content, decimal, factor):
    table = read(content, decimal=decimal)
    np.testing.assert_allclose(table.values[:, 1], np.array([1234, 5678]) * factor)
    assert table.notes == []


def test_the_decimal_point_is_one_of_two(read):
    assert message(read, "a\n1\n", decimal=";") == (
        "Expected a decimal point or a decimal comma; got ';'."
    )


@pytest.mark.parametrize(
    ("content", "value", "note"),
    [
        (
            "a;b\n1;1,234\n2;5,678\n",
            1.234,
            "1,234 was read with a decimal comma; if it marks thousands, pass --decimal .",
        ),
        (
            "a;b\n1;1.234\n2;5.678\n",
            1.234,
            "1.234 was read with a decimal point; if it marks thousands, pass --decimal ,",
        ),
    ],
)
def test_numbers_that_read_both_ways_are_told_of(read, content, value, note):
    """In a file with semicolons, either may be meant."""
    table = read(content)
    assert table.values[0, 1] == value
    assert table.notes == [note]


def test_doubt_is_raised_by_commas_far_down(read):
    table = read("a;b\n" + "1;12\n" * 500 + "2;1,234\n")
    assert table.values[-1, 1] == 1.234
    assert len(table.notes) == 1


def test_a_stray_word_does_not_move_the_decimal_point(read):
    content = "a;b\n1.234;1.234\n2.345;six\n3.456;7.891\n"
    assert "'six' is not a number, as most of the column is" in message(read, content)
    assert read(content, exclude=["b"]).values[0, 0] == 1.234


@pytest.mark.parametrize("content", ["a;b\n1;1.234\n2;5.6\n", "a,b\n1,1.234\n2,5.678\n"])
def test_three_decimals_alone_raise_no_doubt(read, content):
    assert read(content).notes == []


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("# made by hand\n#\n\n# twice\na,b\n1.5,2\n3,4.25\n", ("a", "b")),
        ("# one, two, three\na,b\n1.5,2\n3,4.25\n", ("a", "b")),
        ("# a,b\n1.5,2\n3,4.25\n", ("a", "b")),  # numpy.savetxt writes names so
        ("# a b\n1.5 2\n3 4.25\n", ("a", "b")),
        ("#,b\n1.5,2\n3,4.25\n", ("x1", "b")),
        ("# 7.5,8\r\n1.5,2\r\n3,4.25\r\n", ("x1", "x2")),
        ("# said\n1.5,2\n3,4.25\n", ("x1", "x2")),
    ],
)
def test_comments_at_the_top(read, content, names):
    table = read(content)
    assert table.names == names
    np.testing.assert_array_equal(table.values, [[1.5, 2], [3, 4.25]])


def test_comments_are_counted_as_lines(read):
    assert "line 5, column 'b'" in message(read, "# one\n# two\na,b\n1,2\n3,\n")
    assert message(read, "# only\n") == "t.csv is empty."


def make_ids(**columns):
    """Text of a table of 12 rows with a real-valued column beside those given."""
    columns = {**columns, "real": np.sin(np.arange(12))}
    rows = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join([",".join(columns), *rows])


SPREAD = [40, 7, 11, 3, 90, 1000, 5, 8, 21, 34, 55, 89]


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("", range(12)),
        ("", range(1, 13)),
        ("", SPREAD),
        ("Unnamed: 0", SPREAD),
        ("id", SPREAD),
        ("ID", SPREAD),
        ("index", SPREAD),
        ("customer_id", SPREAD),
        ("customerId", SPREAD),
        ("n", range(12)),
        ("n", range(1, 13)),
    ],
)
def test_ids_are_left_out_on_request(read, name, numbers):
    content = make_ids(**{name: numbers})
    known = name or "x1"
    assert read(content).names == (known, "real")
    table = read(content, ids="leave out")
    assert table.names == ("real",)
    assert table.left_out == {known: "row numbers or ids (12 different whole numbers)"}
    assert table.notes == [f"column {known!r} is kept if --columns names it"]
    assert read(content, [known, "real"], ids="leave out").names == (known, "real")


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("id", [*SPREAD[:-1], 40]),  # not all different
        ("id", [*SPREAD[:-1], 0.5]),
        ("", [*range(11), 10]),
        ("humid", [*SPREAD[:-1], 0.5]),
    ],
)
def test_what_is_not_an_id(read, name, numbers):
    table = read(make_ids(**{name: numbers}), ids="leave out")
    assert table.names == (name or "x1", "real")
    assert table.notes == []


@pytest.mark.parametrize(
    ("name", "numbers"), [("people", SPREAD), ("humid", SPREAD), ("year", range(1950, 1962))]
)
def test_whole_numbers_that_may_be_ids_are_told_of(read, name, numbers):
    table = read(make_ids(**{name: numbers}), ids="leave out")
    assert table.names == (name, "real")
    assert table.notes == [
        f"column {name!r} looks like an id: its values are whole numbers, all different; if it is"
        " one, leave it out with --exclude"
    ]


def test_few_rows_are_no_ids(read):
    table = read("n,m\n1,3\n2,5\n3,4\n", ids="leave out")
    assert table.names == ("n", "m")
    assert table.notes == []


def test_row_weights(read):
    content = "a,w,b\n1,2,5\n,3,6\n2,0,7\n"
    table = read(content, weight="w", missing="drop")
    assert table.names == ("a", "b")
    assert table.left_out == {"w": "row weights"}
    np.testing.assert_array_equal(table.weights, [2, 0])
    np.testing.assert_array_equal(read("1,2\n3,4\n", weight="2").weights, [2, 4])
    assert read(content, missing="drop").weights is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            "a,w\n1,2\n2,-1\n",
            "t.csv: line 3, column 'w': expected a row weight of 0 or more; got -1.",
        ),
        (
            "a,w\n1,\n2,1\n",
            "line 2, column 'w': expected a row weight of 0 or more; got no value.",
        ),
        ("a,w\n1,x\n2,y\n", "column 'w' cannot hold row weights: text (such as 'x')."),
        ("a,w\n1,0\n2,0\n", "t.csv: all row weights in column 'w' are 0."),
        ("a,v\n1,0\n2,0\n", "t.csv has no column 'w'"),
    ],
)
def test_bad_row_weights(read, content, expected):
    assert expected in message(read, content, weight="w", missing="drop")


def test_columns_by_name_in_the_order_asked_for(read):
    table = read("a,b,c\n1,2,3\n4,5,6\n", ["c", "a"])
    assert table.names == ("c", "a")
    np.testing.assert_array_equal(table.values, [[3, 1], [6, 4]])
    assert table.left_out == {"b": NOT_CHOSEN}


def test_columns_by_position_without_a_header(read):
    table = read("1,2,3\n4,5,6\n", ["3", "x1"])
    assert table.names == ("x3", "x1")
    np.testing.assert_array_equal(table.values, [[3, 1], [6, 4]])


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["alcohl"], "t.csv has no column 'alcohl'; did you mean 'alcohol'?"),
        (["PH"], "t.csv has no column 'PH'; did you mean 'pH'?"),
        (["zzz"], "t.csv has no column 'zzz'; it has 'alcohol', 'pH'."),
        (["1"], "t.csv has no column '1'; it has 'alcohol', 'pH'."),
        (["zzz", "qqq"], "t.csv has no columns 'zzz', 'qqq'; it has 'alcohol', 'pH'."),
        (["pH", "pH"], "Column 'pH' is asked for more than once."),
    ],
)
def test_columns_that_are_not_there(read, columns, expected):
    assert message(read, "alcohol,pH\n1,2\n3,4\n", columns) == expected


@pytest.mark.parametrize(
    ("columns", "constant", "expected"),
    [
        (["w"], "keep", "t.csv: column 'w' cannot be used: text (such as 'red')."),
        (["k"], "leave out", "t.csv: column 'k' cannot be used: constant (7 in every row)."),
        (["e"], "keep", "t.csv has 2 missing cells, the first in line 2, column 'e';"),
    ],
)
def test_columns_asked_for_are_never_left_out(read, columns, constant, expected):
    content = "a,w,k,e\n1,red,7,\n2,blue,7,\n"
    assert message(read, content, ["a", *columns], constant=constant).startswith(expected)


BAD = {
    "empty": (b"", "t.csv is empty."),
    "blank": (b" \n\n  \n", "t.csv is empty."),
    "separators only": (b",,\n,,\n", "t.csv holds no values."),
    "header only": (b"a,b\n", "t.csv has a header but no rows."),
    "header and blank lines": (b"a,b\r\n\r\n", "t.csv has a header but no rows."),
    "no numbers": (
        b"a,b\nred,2020-01-01\nblue,2020-01-02\n",
        "t.csv has no numeric column that can be used ('a': text (such as 'red'); 'b': dates).",
    ),
    "too few cells": (b"a,b\n1,2\n3\n", "t.csv: line 3 has 1 cell; expected 2, as in the header."),
    "too many cells": (
        b"a,b\n1,2\n\n3,4,5\n",
        "t.csv: line 4 has 3 cells; expected 2, as in the header.",
    ),
    "ragged without header": (
        b"1,2\n3,4\n5,6,7\n",
        "t.csv: line 3 has 3 cells; expected 2, as in the first line.",
    ),
    "ragged blanks": (
        b"a b\n1 2\n3 4 5\n",
        "t.csv: line 3 has 3 cells; expected 2, as in the header.",
    ),
    "same name twice": (
        b"a,b,a\n1,2,3\n",
        "t.csv has more than one column called 'a': rename the duplicates.",
    ),
    "rubbish": (bytes(range(256)) * 8, "t.csv is neither text nor a Parquet or Arrow table."),
    "picture": (
        b"\x89PNG\r\n\x1a\n" + b"abc",
        "t.csv is neither text nor a Parquet or Arrow table.",
    ),
    "high bytes": (b"a,b\n\x81\x8d,\x8f\n", "t.csv is neither text nor a Parquet or Arrow table."),
    "odd UTF-16": (b"\xff\xfea", "t.csv is neither text nor a Parquet or Arrow table."),
    "zip": (
        b"PK\x03\x04\x14\x00",
        "t.csv looks like a zip or Excel file: save it as CSV.",
    ),
    "open quote": (
        b'a,b\n1,"2\n3,4\n5,6\n',
        "t.csv: line 2 opens a quote that is never closed.",
    ),
    "cut gzip": (gzip.compress(b"a,b\n1,2\n")[:-9], "t.csv is a damaged or truncated gzip file."),
    "too large": (
        b"a,b\n1,2\n3,-4e31\n",
        "t.csv: line 3, column 'b': -4e+31 is out of range; expected at most 1e+30 in size.",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(read, case):
    content, expected = BAD[case]
    assert message(read, content) == expected


def test_out_of_range_names_the_line_after_dropped_rows(read):
    text = message(read, "a\n1\nNA\n1e31\n2\n", missing="drop")
    assert text.startswith("t.csv: line 4, column 'a': 1e+31 is out of range")


def test_inch_marks_are_no_open_quotes(read):
    assert read('a,size\n1,5"\n2,six\n').names == ("a",)
    assert read('a,size\n1,"big"ish\n2,5"\n').names == ("a",)


def test_files_that_cannot_be_read(in_folder, monkeypatch):
    assert message(read_table, "nowhere.csv") == "There is no file nowhere.csv."
    (in_folder / "folder").mkdir()
    assert (
        message(read_table, "folder")
        == "folder is a folder; expected a CSV, Parquet or Arrow file."
    )

    def deny(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", deny)
    assert message(read_table, "x.csv") == "x.csv cannot be read: Permission denied."


def parquet(columns):
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def test_parquet(read):
    from datetime import date
    from decimal import Decimal

    data = parquet(
        {
            "whole": pa.array([1, 2], pa.int32()),
            "real": pa.array([0.5, 1.5], pa.float32()),
            "flag": [True, False],
            "money": [Decimal("1.25"), Decimal("2.50")],
            "code": pa.array([3, 4]).dictionary_encode(),
            "zip": ["01234", "56789"],
            "colour": pa.array(["red", "blue"]).dictionary_encode(),
            "day": [date(2020, 1, 1), date(2020, 1, 2)],
            "list": [[1], [2]],
            "none": pa.nulls(2),
        }
    )
    for name in ("t.parquet", "t.dat"):  # known by its first bytes, whatever the suffix
        table = read(data, name=name)
        assert table.names == ("whole", "real", "flag", "money", "code")
        np.testing.assert_array_equal(table.values, [[1, 0.5, 1, 1.25, 3], [2, 1.5, 0, 2.5, 4]])
        assert table.left_out["zip"] == table.left_out["colour"] == "text"
        assert table.left_out["day"] == "dates"
        assert table.left_out["list"].startswith("values of type list")
        assert table.left_out["none"] == "empty"


def test_bad_parquet(read):
    data = parquet({"a": [1.0, None, 2.0]})
    assert "1 missing cell, the first in row 2, column 'a'" in message(read, data)
    assert message(read, data[:-20]) == "t.csv is a damaged or truncated Parquet file."
    assert message(read, b"a,b\n1,2\n", name="t.parquet") == (
        "t.parquet is not in Parquet format, despite its extension."
    )
    assert message(read, b"", name="t.parquet") == "t.parquet is empty."
    assert message(read, parquet({"a": pa.array([], pa.float64())})) == (
        "t.csv has columns but no rows."
    )


@pytest.mark.parametrize("kind", ["feather", "file", "stream"])
def test_arrow(read, kind):
    table = pa.table({"a": [1, 2], "w": ["red", "blue"], "b": [0.5, None]})
    sink = io.BytesIO()
    if kind == "feather":
        feather.write_feather(table, sink)
    else:
        make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with make(sink, table.schema) as writer:
            writer.write_table(table)
    for name in ("t.feather", "t.dat"):
        assert "1 missing cell, the first in row 2" in message(read, sink.getvalue(), name=name)
        found = read(sink.getvalue(), name=name, missing="drop")
        assert found.names == ("a", "b")
        assert found.left_out == {"w": "text"}
        np.testing.assert_array_equal(found.values, [[1, 0.5]])
    assert message(read, sink.getvalue()[:-60]) == "t.csv is a damaged or truncated Arrow file."
    assert message(read, b"a,b\n1,2\n", name="t.arrow") == (
        "t.arrow is not in Arrow format, despite its extension."
    )


def test_large_text_is_read_beyond_the_sample(read):
    """A file of many blocks: types change and a word appears long after the sample."""
    rows = [f"{i},{i / 4}" for i in range(20_000)]
    assert read("a,b\n" + "\n".join(rows)).values[-1].tolist() == [19_999, 4999.75]
    rows[15_000] = "x,1"
    assert "line 15002, column 'a': 'x'" in message(read, "a,b\n" + "\n".join(rows))


def test_wide_header_beyond_the_sample(read):
    names = [f"a long name for column {d}" for d in range(4000)]
    table = read(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    assert table.names == tuple(names)
    assert table.values.shape == (1, 4000)


def test_to_arrow_keeps_names_and_values(read):
    arrow = read("a,b\n1,2\n3,4\n").to_arrow()
    assert arrow.to_pydict() == {"a": [1.0, 3.0], "b": [2.0, 4.0]}


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.feather"])
def test_what_is_written_is_read_back(in_folder, name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=50) * 10.0 ** rng.integers(-20, 20, size=50)
    write_table({"a": x, "b, or c": -x, 'quote"d': x + 1}, name)
    table = read_table(name)
    assert table.names == ("a", "b, or c", 'quote"d')
    np.testing.assert_array_equal(table.values, np.column_stack([x, -x, x + 1]))
    assert os.listdir(in_folder) == [name]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["p", "q"], "p\nq"),
        (["p", "q,r"], 'p\n"q,r"'),
        (['say "q"', "p\nq", "p q"], '"say ""q"""\n"p\nq"\np q'),
    ],
)
def test_only_words_that_need_it_are_quoted(in_folder, words, expected):
    write_table({"w": words}, "out.csv")
    assert (in_folder / "out.csv").read_text() == f"w\n{expected}\n"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_are_written(in_folder, separator):
    columns = {"w": ["p,;\t|q", "", "r"], f"x{separator}y": [1.5, 2.5, 3.5], "n": [1, 2, 3]}
    for words in (columns["w"], ["p", "q", "r"]):  # with quotes, and without any
        write_table(columns | {"w": words}, "out.csv", separator=separator, force=True)
        frame, _ = read_frame("out.csv", separator=separator)
        expected = columns | {"w": [word or None for word in words]}
        assert frame.cells.to_pydict() == expected
        assert frame.separator == separator


def test_writing_to_standard_output(capfdbinary):
    write_table({"a": [1.5, 2.0]})
    assert capfdbinary.readouterr().out.splitlines() == [b"a", b"1.5", b"2"]


def test_files_are_not_overwritten_unasked(in_folder):
    (in_folder / "out.csv").write_text("mine")
    with pytest.raises(TableError, match=r"^out.csv exists already; pass --force to overwrite"):
        write_table({"a": [1]}, "out.csv")
    assert (in_folder / "out.csv").read_text() == "mine"
    write_table({"a": [1]}, "out.csv", force=True)
    assert (in_folder / "out.csv").read_text() == "a\n1\n"


def test_places_that_cannot_be_written_to(in_folder, monkeypatch):
    (in_folder / "folder.csv").mkdir()
    with pytest.raises(IsADirectoryError, match=r"folder\.csv: it is a directory"):
        write_table({"a": [1]}, "folder.csv", force=True)
    with pytest.raises(FileNotFoundError, match="the folder none does not exist"):
        write_table({"a": [1]}, "none/out.csv")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(TableError, match=r"The folder of out\.csv may not be written to\."):
        check_destination("out.csv")


@pytest.mark.parametrize("alias", ["in.csv", "./in.csv", "link.csv", "hard.csv", "up/../in.csv"])
def test_an_input_is_never_overwritten(in_folder, alias):
    (in_folder / "in.csv").write_text("mine")
    (in_folder / "up").mkdir()
    (in_folder / "link.csv").symlink_to("in.csv")
    os.link("in.csv", "hard.csv")
    with pytest.raises(ValueError, match=r"it is an input too \(in\.csv\)\.$"):
        check_destination(alias, force=True, inputs=["other.csv", "in.csv"])
    check_destination("new.csv", inputs=["in.csv", "-"])


def test_standard_input_is_never_overwritten(in_folder, monkeypatch):
    (in_folder / "in.csv").write_text("mine")
    (in_folder / "other.csv").write_text("mine")
    with open("in.csv") as file:
        monkeypatch.setattr(sys, "stdin", file)
        with pytest.raises(ValueError, match=r"it is an input too \(standard input\)"):
            check_destination("in.csv", force=True, inputs=["-"])
        check_destination("other.csv", force=True, inputs=["-"])


def test_unknown_format():
    assert table_format("a/b.PQ") == "parquet"
    with pytest.raises(TableError, match=r"ending in \.csv, \.parquet or \.feather; got 'a\.txt'"):
        table_format("a.txt")


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_half_written_is_left(in_folder, monkeypatch, failure):
    (in_folder / "out.csv").write_text("old")

    def fail(*_):
        raise failure

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(type(failure)):
        write_table({"a": [1]}, "out.csv", force=True)
    assert os.listdir(in_folder) == ["out.csv"]
    assert (in_folder / "out.csv").read_text() == "old"


# ------------------------------------------------------------------ columns of any type


@pytest.fixture
def frame(in_folder):
    """Read columns of any type from the text of a CSV file."""

    def frame(content, *args, **kwargs):
        (in_folder / "t.csv").write_text(content)
        return read_frame("t.csv", *args, **kwargs)[0]

    return frame


DAY = dt.date(2020, 3, 1)
TYPED = {
    "whole": (["1", "", "3"], pa.int64(), [1, None, 3]),
    "decimals": (["1", "2.5", "?"], pa.float64(), [1, 2.5, None]),
    "thousands": (["'1,234'", "'12,000'", "7"], pa.int64(), [1234, 12000, 7]),
    "thousands and decimals": (["'1,234.5'", "2", "NA"], pa.float64(), [1234.5, 2, None]),
    "booleans": (["true", " FALSE ", ""], pa.bool_(), [True, False, None]),
    "words": ([" red ", "blue", "n/a"], pa.string(), ["red", "blue", None]),
    "dates": (["2020-03-01", "-", "2020-03-01"], pa.date32(), [DAY, None, DAY]),
    "blanks around dates": ([" 2020-03-01", "", "2020-3-1 "], pa.date32(), [DAY, None, DAY]),
    "days first, by points": (["01.03.2020", "", "1.3.2020"], pa.date32(), [DAY, None, DAY]),
    "days first": (
        ["01/03/2020", "31/03/2020", ""],
        pa.date32(),
        [DAY, DAY.replace(day=31), None],
    ),
    "months first": (
        ["3/1/2020", "3/31/2020", ""],
        pa.date32(),
        [DAY, DAY.replace(day=31), None],
    ),
    "years first": (["2020/03/01", "2020/3/1", "?"], pa.date32(), [DAY, DAY, None]),
    "times": (
        ["01.03.2020 9:30", "", "01.03.2020T12:00"],
        pa.timestamp("s"),
        [dt.datetime(2020, 3, 1, 9, 30), None, dt.datetime(2020, 3, 1, 12)],
    ),
    "fractions": (
        ["2020-03-01 9:30:00.5", "", "2020-03-01 12:00:00"],
        pa.timestamp("us"),
        [dt.datetime(2020, 3, 1, 9, 30, 0, 500_000), None, dt.datetime(2020, 3, 1, 12)],
    ),
    "no dates": (["2020-13-01", "a", "b"], pa.string(), ["2020-13-01", "a", "b"]),
    "no months": (
        ["2020-13-01", "2020-14-01", ""],
        pa.string(),
        ["2020-13-01", "2020-14-01", None],
    ),
    "empty": (["", "NA", "?"], pa.null(), [None, None, None]),
}


@pytest.mark.parametrize("case", TYPED)
def test_types_of_cells(frame, case):
    words, kind, expected = TYPED[case]
    rows = (f"{word},{i}.5".replace("'", '"') for i, word in enumerate(words))
    found = frame("a,other\n" + "\n".join(rows) + "\n")
    assert found.cells["a"].type == kind
    assert found.cells["a"].to_pylist() == expected


def test_days_and_months_that_cannot_be_told_apart(frame):
    text = "a,b\n01/02/2020,1\n03/04/2020,2\n"
    why = "dates whose day and month cannot be told apart (such as '01/02/2020'); write them as"
    assert frame(text).left_out == {"a": f"{why} 2020-12-31"}
    with pytest.raises(TableError, match=r"t.csv: column 'a' cannot be used: dates whose day"):
        frame(text, columns=["a"])
    # Where it makes no difference they are dates.
    assert frame("a,b\n02/02/2020,1\n03/03/2020,2\n").cells["a"].type == pa.date32()


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separator_of_words_alone(frame, separator):
    text = "colour,shape of it,size\nred,round one,big\nblue,flat,so so\n".replace(",", separator)
    assert frame(text).names == ("colour", "shape of it", "size")


def test_one_column_of_words(frame):
    assert frame("shape of it\nround one\nflat one\n").names == ("shape of it",)


def test_columns_as_they_have_to_be(frame):
    text = "zip,n\n00501,1\n1,x\n"
    assert frame(text, kinds={"zip": "category", "n": "category"}).cells["zip"].to_pylist() == [
        "00501",
        "1",
    ]
    with pytest.raises(TableError, match="t.csv: line 3, column 'n': 'x' is not a number; fix"):
        frame(text, kinds={"n": "integer"})
    truths = frame("b,c\n1,2\ntrue,3\n0,4\n,5\n", kinds={"b": "boolean"})
    assert truths.cells["b"].to_pylist() == [True, True, False, None]
    with pytest.raises(TableError, match="'1,5' is not a number with a decimal point; fix the"):
        frame("a|b\n1.5|2\n1,5|x\n", kinds={"a": "real"}, decimal=".")


def test_rows_of_a_frame_are_named_as_in_the_file(frame):
    found = frame("# note\na,b\n\n1,2\n3,4\n5,6\n", weight="b")
    assert found.place(1) == "line 5"
    some = found.keep(np.array([False, True, True]))
    assert (some.place(0), some.n_rows, some.dropped_rows) == ("line 5", 2, 1)
    assert some.rows.tolist() == [2, 3]
    assert some.weights.tolist() == [4, 6]
    assert some.to_arrow().to_pydict() == {"a": [3, 5]}


def test_marks_as_text_and_numbers():
    assert as_marks(["?", "1e3", "nan"]) == ("?", "1e3", 1000.0, "nan")


def test_rows_are_given_as_json_has_them():
    noon = dt.datetime(2020, 3, 1, 12, 0, 0, 5)
    table = pa.table(
        {
            "day": pa.array([noon.date(), None]),
            "fine": pa.array([noon, None], pa.timestamp("ns")),
            "span": pa.array([1500, None], pa.duration("ms")),
            "exact": pa.array([Decimal("1.50"), None]),
            "level": pa.array(["a", None]).dictionary_encode(),
        }
    )
    first, second = rows_of(table)
    assert first == {
        "day": "2020-03-01",
        "fine": "2020-03-01 12:00:00.000005000",
        "span": 1.5,
        "exact": 1.5,
        "level": "a",
    }
    assert type(first["exact"]) is float
    assert set(second.values()) == {None}


def test_types_that_csv_has_not_are_written(in_folder):
    noon = dt.datetime(2020, 3, 1, 12)
    write_table(
        pa.table(
            {
                "level": pa.array(["a, b", None, "c"]).dictionary_encode(),
                "time": pa.array([noon, None, noon], pa.timestamp("ns")),
                "fine": pa.array([noon, None, noon.replace(microsecond=5)], pa.timestamp("us")),
                "span": pa.array([1500, None, 2000], pa.duration("ms")),
                "zone": pa.array([noon, None, noon], pa.timestamp("us", "UTC")),
            }
        ),
        "t.csv",
    )
    assert (in_folder / "t.csv").read_text().splitlines() == [
        "level,time,fine,span,zone",
        '"a, b",2020-03-01 12:00:00,2020-03-01 12:00:00.000000,1.5,2020-03-01 12:00:00Z',
        ",,,,",
        "c,2020-03-01 12:00:00,2020-03-01 12:00:00.000005,2,2020-03-01 12:00:00Z",
    ]
