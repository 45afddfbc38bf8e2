"""Words, pieces and vocabulary files of BERT's kind."""

import pytest

from albert.io import file_io
from albert.text import tokenization, wordpiece


@pytest.mark.parametrize("convert", [wordpiece.convert_to_unicode, wordpiece.printable_text])
def test_text_of_str_and_bytes(convert):
    assert convert("größe") == convert("größe".encode()) == "größe"
    assert convert(b"a\xffb") == "ab"
    with pytest.raises(TypeError, match="int"):
        convert(7)


def test_white_space_separates_words():
    assert wordpiece.whitespace_tokenize(" a\tb\n c ") == ["a", "b", "c"]
    assert wordpiece.whitespace_tokenize(b"") == []


@pytest.mark.parametrize(
    ("text", "lower", "expected"),
    [
        ("HÉllo wOrld", True, ["hello", "world"]),
        ("HÉllo wOrld", False, ["HÉllo", "wOrld"]),
        ("a.b--$5^`|~", True, ["a", ".", "b", "-", "-", "$", "5", "^", "`", "|", "~"]),
        ("x¿y…z", True, ["x", "¿", "y", "…", "z"]),
        ("ab中文cd", True, ["ab", "中", "文", "cd"]),
        ("ひらがな한국", False, ["ひらがな한국"]),
        ("a\x00b\ufffdc\u200dd\x07", True, ["abcd"]),
        ("a\u00a0b\u3000c\td\re", True, ["a", "b", "c", "d", "e"]),
        ("\u0301", True, []),
        ("", True, []),
    ],
)
def test_basic_tokenize(text, lower, expected):
    assert wordpiece.BasicTokenizer(lower).tokenize(text) == expected


def test_wordpiece_greedy_and_limits():
    vocab = {"[UNK]": 0, "un": 1, "una": 2, "##aff": 3, "##ff": 4, "##able": 5, "a": 6, "##a": 7}
    tokenizer = wordpiece.WordpieceTokenizer(vocab)
    assert tokenizer.tokenize_word("unaffable") == ("una", "##ff", "##able")
    assert tokenizer.tokenize_word("unaffablex") == ("[UNK]",)
    assert tokenizer.tokenize_word("a" * 200) == ("a",) + ("##a",) * 199
    assert tokenizer.tokenize_word("a" * 201) == ("[UNK]",)
    assert tokenizer.tokenize(b"unaffable  a") == ["una", "##ff", "##able", "a"]
    short = wordpiece.WordpieceTokenizer(vocab, "?", max_input_chars_per_word=3)
    assert short.tokenize("una unaa x") == ["una", "?", "?"]


def test_load_vocab(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("\ufeff[PAD]\r\n a b\t\n[UNK]\n[PAD]\n\u2028\nx\n\n".encode())
    vocab = wordpiece.load_vocab(str(path))
    assert vocab == {"[PAD]": 0, "a": 1, "[UNK]": 2, " ": 3, "x": 4}


@pytest.mark.parametrize("flag", ["spm_model_file", "vocab_file"])
def test_the_word_for_a_hub_modules_file_is_no_file(flag):
    with pytest.raises(file_io.InputError, match=f"{flag}=from_tf_hub stands for the file of"):
        tokenization.FullTokenizer(**{flag: "from_tf_hub"})


def test_ids_are_numbers_of_lines_where_the_folder_counts_so(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[UNK]\nfilm\nfilm \n\nthe\n", "utf-8")
    assert wordpiece.load_vocab(str(path)) == {"[UNK]": 0, "film": 1, " ": 2, "the": 3}
    by_line = wordpiece.load_vocab(str(path), ids_by_line=True)
    assert list(by_line) == ["[UNK]", "[unused_line_2]", "film", "[unused_line_4]", "the"]
    path.write_text(wordpiece.vocab_text(by_line))
    assert wordpiece.load_vocab(str(path)) == by_line
