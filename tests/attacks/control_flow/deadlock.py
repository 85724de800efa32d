"""Waits for a lock that nobody gives back.

points: 10
start: solved
stops: no answer in the time
slow: yes
"""

import threading

lock = threading.Lock()
lock.acquire()
lock.acquire()
