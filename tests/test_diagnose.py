"""Wrong answers that are in no museum, each judged alone: `autograder diagnose`."""

import pytest
from confined import needs_bubblewrap

from autograder.diagnose import main, notebook_with, read_answers

ONE = "# %% adds: sums in place of products\ndef matmul_flops(m, k, n):\n    return m + k + n\n"
RIGHT = "# %% right: nothing\ndef matmul_flops(m, k, n):\n    return 2 * m * k * n\n"


def test_a_file_is_read_cell_by_cell(tmp_path):
    file = tmp_path / "start.py"
    file.write_text(ONE + "\n\n" + RIGHT)
    adds, right = read_answers(file)
    assert (adds.name, adds.words) == ("adds", "sums in place of products")
    assert adds.source.startswith("def matmul_flops")
    assert "# %%" not in adds.source
    assert right.name == "right"


@pytest.mark.parametrize("text", ["", "def f(): ...\n", "# %% no words\ndef f(): ...\n"])
def test_a_file_of_another_form_is_refused(tmp_path, text):
    file = tmp_path / "start.py"
    file.write_text(text)
    with pytest.raises(ValueError, match="a cell begins with a line such as"):
        list(read_answers(file))


def test_an_answer_stands_behind_what_it_replaces():
    with pytest.raises(ValueError, match="no answer cell of start defines any of nothing"):
        notebook_with("start", "def nothing(): ...")
    notebook = notebook_with("start", "def matmul_flops(m, k, n): return 0")
    (cell,) = [c for c in notebook["cells"] if "return 0" in c["source"]]
    assert cell["source"].count("def matmul_flops") == 2


def test_a_folder_without_such_files_is_refused(tmp_path, capsys):
    for names, words in (
        ([], "has no file that is named as a lesson is"),
        (["03"], "has no kv_cache.py"),
        (["nowhere"], "no lesson 'nowhere'; there are 00-start"),
    ):
        with pytest.raises(SystemExit) as left:
            main([str(tmp_path), *names])
        assert left.value.code == 2
        assert words in capsys.readouterr().err


@needs_bubblewrap
def test_what_is_wrong_is_printed_beside_what_is_said(tmp_path, capsys):
    (tmp_path / "start.py").write_text(ONE + RIGHT)
    assert main([str(tmp_path)]) == 0
    adds, rest = capsys.readouterr().out.split("start right: nothing")
    assert "start adds: sums in place of products [7 points]" in adds
    assert "flops_of_any_product" in adds
    assert "matmul_flops(" in adds
    assert "NOT CAUGHT" in rest
    assert "NOT CAUGHT" not in adds
