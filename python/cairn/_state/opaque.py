"""Values of other libraries' files that only their own code could make."""

from __future__ import annotations

from typing import Any


class Opaque:
    """Stands for a value that was read from another library's file and is no plain data.

    Cairn executes nothing of such a file, so an object of a class, an array of numpy or a tensor within a list stays
    what it is there: a record that says what it would have become.

    Attributes:
      description: what the file says it is, such as "argparse.Namespace".
    """

    def __init__(self, description: str) -> None:
        self.description = description

    def __repr__(self) -> str:
        return f"cairn.Opaque({self.description!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.description == self.description

    def __hash__(self) -> int:
        return hash(self.description)


def find(value: Any, path: str) -> tuple[str, Opaque] | None:
    """Returns the first opaque part of a value and where it stands; None if there is none."""
    if isinstance(value, Opaque):
        return path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, item in items:
        found = find(item, f"{path}[{key!r}]")
        if found is not None:
            return found
    return None


def without_unwanted(value: Any, template: Any, path: str, left_out: list[str]) -> Any:
    """Returns a value without the items of its dicts that cannot be made and that nobody asked for.

    Args:
      template: what the state has in its place. What is under a key that it lacks was not asked for.
      left_out: gets the names of such items.
    """
    if not isinstance(value, dict) or not isinstance(template, dict):
        return value
    kept: dict[Any, Any] = {}
    for key, item in value.items():
        place = f"{path}[{key!r}]"
        if key in template:
            kept[key] = without_unwanted(item, template[key], place, left_out)
        elif find(item, place) is None:
            kept[key] = item
        else:
            left_out.append(place)
    return kept if len(kept) < len(value) or any(kept[key] is not item for key, item in value.items()) else value
