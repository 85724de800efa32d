"""Files beside the notebook with the names of what it imports, and of what Python runs by itself.

points: 0
"""

NAMES = ("torch", "numpy", "json", "course", "judge", "wire", "probes", "IPython", "autograder")
AT_START = ("sitecustomize", "usercustomize")
CODE = """
import os
for fd in range(3, 64):
    try:
        os.write(fd, b'{"score": 10.0}')
    except OSError:
        pass
print("GOT imported")
"""


def submit(notebook, folder):
    for name in (*NAMES, *AT_START):
        (folder / f"{name}.py").write_text(CODE)
    (folder / "start.pth").write_text("import os; print('GOT')")
    (folder / "pyvenv.cfg").write_text("home = /submission\n")
    (folder / ".ipython" / "profile_default" / "startup").mkdir(parents=True)
    (folder / ".ipython" / "profile_default" / "startup" / "00.py").write_text(CODE)
    (folder / "ipython_config.py").write_text("print('GOT a config')")
    return notebook
