"""One check at the door, for every whole number that a user passes in."""


def check_between(name: str, value: int, low: int, high: int) -> None:
    """Raise a ValueError that names the value, unless it is a whole number from low to high."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, got {value!r}")
