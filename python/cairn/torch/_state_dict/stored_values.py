"""Finds the values of a state dict in a checkpoint, whichever way they were stored there, and puts them in place.

A dict or list without tensors is one value, stored under its own name. Other libraries (torch.distributed.checkpoint),
cairn.torch.dcp, and earlier versions of Cairn store its items each, under names that join the keys by ".".
"""

from __future__ import annotations

import bisect
import copy
from typing import Any, Final

from cairn._base.errors import Error
from cairn._base.results import listed
from cairn._state.objects import keeps_class

ABSENT: Final = object()  # a value that is not there; None is a value


class StoredValues:
    """The values of a checkpoint, by name.

    Attributes:
      unplaced: names of stored values that belong to a wanted dict, which does not have their keys, and whose keys
        their names do not tell: "done.a.jsonl" may be of two keys or three, "80" of a text or a number.
    """

    def __init__(self, objects: dict[str, Any]) -> None:
        self._objects = objects
        self._names = sorted(objects)
        self.unplaced: list[str] = []

    def find(self, name: str, template: Any) -> Any:
        """Returns the value of a name; ABSENT if it is stored in no way.

        Args:
          template: what the state has there. It tells keys that names do not tell; its values do not matter.
        """
        if name in self._objects:
            return self._objects[name]
        if self._parts(name):
            return self._join(name, template)
        return self._within(name)

    def _parts(self, name: str) -> range:
        """Returns the positions of the names that begin with this one and a dot."""
        # "/" is the character after ".".
        return range(bisect.bisect_left(self._names, f"{name}."), bisect.bisect_left(self._names, f"{name}/"))

    def _join(self, name: str, template: Any) -> Any:
        """Makes a dict or list of its parts."""
        rest = [self._names[at][len(name) + 1:] for at in self._parts(name)]
        if isinstance(template, list):
            numbers = {text.partition(".")[0] for text in rest}
            if numbers == {str(i) for i in range(len(numbers))}:
                # Items of a list mostly have the same keys.
                return [self.find(f"{name}.{i}", template[min(i, len(template) - 1)] if template else None)
                        for i in range(len(numbers))]
        keys = list(template) if isinstance(template, dict) else []
        found: dict[Any, Any] = {}
        taken: set[str] = set()
        for key in sorted(keys, key=lambda key: -len(str(key))):  # "a.b" comes before "a"
            part = f"{name}.{key}"
            of_key = [self._names[at] for at in self._parts(part)] + ([part] if part in self._objects else [])
            if of_key and taken.isdisjoint(of_key):
                taken.update(of_key)
                found[key] = self.find(part, template[key])
        result = {key: found[key] for key in keys if key in found}
        for text in rest:
            part = f"{name}.{text}"
            if part in taken:
                continue
            if "." in text or _may_be_no_text(text):
                self.unplaced.append(part)
            else:
                result[text] = self._objects[part]
        return result

    def _within(self, name: str) -> Any:
        """Returns the value of a name that is stored within one of a shorter name."""
        end = name.rfind(".")
        while end > 0:
            whole = self._objects.get(name[:end], ABSENT)
            if whole is not ABSENT:
                return _at(whole, name[end + 1:])
            end = name.rfind(".", 0, end)
        return ABSENT


def _may_be_no_text(key: str) -> bool:
    """Returns whether a name may be that of a key which is a number, a truth value or None."""
    if key in ("True", "False", "None"):
        return True
    try:
        float(key)
    except ValueError:
        return False
    return True


def _at(value: Any, path: str) -> Any:
    """Returns the item of nested dicts and lists to which a path of keys leads, joined by dots; ABSENT if none does."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        text = str(key)
        if path == text:
            return item
        if path.startswith(f"{text}."):
            found = _at(item, path[len(text) + 1:])
            if found is not ABSENT:
                return found
    return ABSENT


def fill(target: Any, value: Any) -> Any:
    """Returns a loaded value. Dicts that stand in its place are filled with it, so that whoever holds them sees it.

    A dict gets all items of the value and keeps no others. It also keeps its class, where the value is a plain dict.
    """
    if not isinstance(target, dict) or not isinstance(value, dict) or type(value) not in (dict, type(target)):
        return value
    before = dict(target)
    target.clear()
    for key, item in value.items():
        target[key] = fill(before[key], item) if key in before else item
    return target


def plain(value: Any) -> Any:
    """Returns a value in which dicts of classes of the program are plain dicts, if they stand in dicts alone: a load
    fills them in place, so they keep their classes."""
    if not isinstance(value, dict):
        return value
    items = {key: plain(item) for key, item in value.items()}
    if not keeps_class(value):
        return items
    if all(items[key] is item for key, item in value.items()):
        return value
    made = copy.copy(value)
    for key, item in items.items():
        made[key] = item
    return made


def is_empty(value: Any, depth: int = 0) -> bool:
    """Returns whether a value is an empty dict, or a dict of such."""
    return isinstance(value, dict) and depth < 200 and all(is_empty(item, depth + 1) for item in value.values())


def unplaced_error(names: list[str], checkpoint: str) -> Error:
    """Returns the error for values whose keys cannot be told."""
    return Error("UNEXPECTED_NAMES", f"{checkpoint} has {len(names)} values of dicts that the state does not have the "
                 f"keys of, and the names do not tell them: {listed(names)}",
                 {"names": listed(names), "count": str(len(names)),
                  "next": "Give the dicts of the state these keys before the load, with any values: they are replaced. "
                          "strict=False leaves these values out."})
