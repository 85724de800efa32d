"""Magics, shell commands, help, and cells that install something.

points: 10
start: solved
"""

from nbformat.v4 import new_code_cell

CELLS = [
    "%matplotlib inline\n%time 1 + 1\n%precision 3",
    "%%time\nx = 1",
    "!echo hello\nlisting = !ls",
    "%pip install --quiet tqdm",
    "%%capture captured\nprint('hidden')",
    "%%writefile /tmp/helper.py\nx = 1",
    "%cd /tmp\n%pwd",
    "matmul_flops?",
    "%load_ext autoreload\n%autoreload 2",
    "%%bash\necho hello",
    "import asyncio\nawait asyncio.sleep(0)",
]


def submit(notebook, folder):
    notebook.cells += [new_code_cell(source) for source in CELLS]
    return notebook
