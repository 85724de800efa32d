"""Waits for a lock that nobody gives back.

points: 10
start: solved
stops: the time limit of
"""

import threading

lock = threading.Lock()
lock.acquire()
lock.acquire()
