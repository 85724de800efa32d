"""The chat template that lies beside a checkpoint: how its authors wrote a conversation as one text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

Message = dict[str, str]
"""Its `role` (system, user or assistant) and its `content`."""


def read_chat_template(folder: Path) -> Callable[[Sequence[Message]], str] | None:
    """Return what writes a conversation as one text, up to where the model answers; None without a
    template. It runs in Jinja's sandbox, as in `transformers`, since templates are strangers' code.

    Raises:
        ValueError: from what is returned: the template refuses these messages.
    """
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # PyTorch brings it along

    settings = read_settings(folder / "tokenizer_config.json")
    source = settings.get("chat_template")
    if isinstance(source, list):  # several, by name
        source = {one["name"]: one["template"] for one in source}.get("default")
    if (file := folder / "chat_template.jinja").is_file():
        source = file.read_text(encoding="utf-8")
    if not source:
        return None
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **how: json.dumps(
        value, ensure_ascii=False, **how
    )
    environment.globals |= {"raise_exception": _refuse, "strftime_now": datetime.now().strftime}
    special = {
        name: token["content"] if isinstance(token, dict) else token
        for name, token in settings.items()
        if name.endswith("_token") and token
    }

    def write(messages: Sequence[Message]) -> str:
        try:
            template = environment.from_string(source)
            return template.render(messages=messages, add_generation_prompt=True, **special)
        except TemplateError as error:
            raise ValueError(f"the model's chat template: {error}") from error

    return write


def _refuse(words: str) -> None:
    raise ValueError(f"the model's chat template: {words}")


def read_settings(path: Path) -> dict[str, Any]:
    """Read a JSON file beside a checkpoint; no settings where there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
