"""Word which house rule of lesson 00 was broken. Loads no torch: who decides needs none."""

from __future__ import annotations

RULES = {
    "argument": "{function} changed what it was given: {what}. The caller still needs it. Which of "
    "your lines writes into it?",
    "device": "{function} was given tensors on one device, and new ones are made on another unless they "
    "are told where, as beside a GPU: {what}. Which of your lines makes a tensor and does not say where?",
    "shared": "Two calls of {function} returned the same memory: whoever writes into one result changes "
    "the other. Where does a result come from, if not from its own call?",
    "result": "What {function} returned was changed afterwards by its own code. In whose memory does "
    "a result lie?",
}
"""The rules that are recorded, each with the message of a student who broke it."""
OWN_CACHE = "And is your own cache told it?"
"""Behind the question where a function may make a cache."""
Broken = list[dict[str, str]]
"""Which rules were broken: "rule", "function" and "what", first one first."""


def wrong_device(function: str, found: str) -> str | None:
    """Word what `default_device.beside_default` has found of a function; None where that is nothing."""
    return RULES["device"].format(function=function, what=found) if found else None


def judge_rules(broken: object) -> str | None:
    """Word the first rule that was broken; None where none was. What comes may be anything."""
    if type(broken) is not list or not broken:
        return None
    first = broken[0] if type(broken[0]) is dict else {}
    sentence = RULES.get(str(first.get("rule")), "A house rule of lesson 00 was broken.")
    names = {name: f"{first.get(name)!s:.100}" for name in ("function", "what")}
    return sentence.format(**names)
