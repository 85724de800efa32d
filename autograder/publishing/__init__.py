"""The students' repository: what they get, and nothing that answers what they are still asked."""
