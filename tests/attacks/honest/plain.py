"""Every answer as it should be, and nothing else.

points: 10
start: solved
lesson: 03-kv-cache
"""
