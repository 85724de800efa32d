"""How long a test waits for something that has to come."""

PATIENCE = 600
"""Seconds after which a test gives up. It only keeps a test that fails from waiting for ever: on a busy
machine everything takes many times as long as on a quiet one, and is no less right for that."""
