"""Drafts for lesson 12: who proposes the next tokens, and what is given to measure proposals."""
