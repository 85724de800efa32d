"""Tasks, loops and awaits at the top level of cells, and functions that know of a running loop.

points: 10
start: solved
"""

from nbformat.v4 import new_code_cell

CELLS = [
    "import asyncio\nassert asyncio.get_running_loop().is_running()",
    "async def later(n):\n    await asyncio.sleep(0.01)\n    return n",
    "task = asyncio.create_task(later(1))",
    "assert await task == 1\nassert await asyncio.gather(later(2), later(3)) == [2, 3]",
    "loop = asyncio.get_event_loop()\n"
    "task = loop.create_task(later(4)) if loop.is_running() else loop.run_until_complete(later(4))",
    "forever = asyncio.create_task(asyncio.sleep(10**6))",
    "async def fails():\n    raise SystemExit\nasyncio.create_task(fails())",
    "for waiting in asyncio.all_tasks() - {asyncio.current_task()}:\n    waiting.cancel()",
    "whole = matmul_flops\n"
    "def matmul_flops(m, k, n):\n    asyncio.get_running_loop()\n    return whole(m, k, n)",
]


def submit(notebook, folder):
    notebook.cells += [new_code_cell(source) for source in CELLS]
    return notebook
