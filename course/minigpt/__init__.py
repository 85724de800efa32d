"""The mini-GPT's parts as the lessons build them, one module a lesson. Built by `make build`."""
