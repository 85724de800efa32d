"""Magics that a kernel has and this shell has not stand above the answers, in the same cells.

points: 10
start: solved
"""

MAGICS = """%connect_info
%autosave 60
%config InlineBackend.figure_format = 'retina'
%matplotlib widget
%load_ext nothing_of_that_name
%no_such_magic at all
%pip install nothing-of-that-name
!pip install nothing-of-that-name
import torch
torch.compile(torch.nn.Linear(2, 2), fullgraph=True)(torch.zeros(1, 2))
"""


def submit(notebook, folder):
    for cell in notebook.cells:
        if cell.cell_type == "code" and "def matmul_" in cell.source:
            cell.source = MAGICS + cell.source
    return notebook
