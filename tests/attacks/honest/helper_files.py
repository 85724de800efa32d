"""Files beside the notebook: imported, run, read, changed and made; and too large a folder of data.

points: 10
start: solved
"""

from nbformat.v4 import new_code_cell

CELLS = [
    "%run helper.py\nassert doubled == 42",
    "import helper\nassert helper.doubled == 42",
    "from tools.more import tripled\nassert tripled == 63",
    "import json\nwith open('settings.json') as file:\n    settings = json.load(file)\n"
    "assert settings == {'n': 21}",
    "with open('settings.json', 'w') as file:\n    json.dump({'n': 22}, file)\n"
    "assert json.load(open('settings.json'))['n'] == 22",
    "with open('log.txt', 'a') as file:\n    file.write('line')",
    "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('picture.png')",
    "!ls data | head -3\n!cat log.txt",
    "%%writefile late.py\nx = 1",
    "import late\nassert late.x == 1",
    "assert len(open('large.bin', 'rb').read()) == 48 * 2**20",
]


def submit(notebook, folder):
    (folder / "helper.py").write_text("doubled = 42\n")
    (folder / "tools").mkdir()
    (folder / "tools" / "more.py").write_text("tripled = 63\n")
    (folder / "settings.json").write_text('{"n": 21}')
    (folder / "large.bin").write_bytes(bytes(48 * 2**20))
    (folder / "data").mkdir()
    for n in range(3000):
        (folder / "data" / str(n)).touch()
    notebook.cells += [new_code_cell(source) for source in CELLS]
    return notebook
