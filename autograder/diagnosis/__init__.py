"""Recognize known mistakes in wrong answers."""
