"""Remembers from which checkpoint a training goes on, so that its saves can say so."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ResumePoint:
    """A checkpoint from which a training goes on.

    Attributes:
      line: number of the branch of checkpoints that the training saves from there; the same on all ranks.
      step: that was loaded.
    """

    line: int
    step: int


class Lineage:
    """Knows from which checkpoint the next saves of one session go on. Not thread-safe."""

    def __init__(self) -> None:
        self._loaded: ResumePoint | None = None  # not saved from yet
        self._resumed: ResumePoint | None = None
        self._last_saved: int | None = None

    def note_load(self, line: int, step: int) -> None:
        """Takes note of a load of the job's own checkpoint."""
        self._loaded = ResumePoint(line, step)

    def resume_point_at(self, step: int) -> ResumePoint | None:
        """Returns from where the training has gone on that now saves `step`; None if it has loaded nothing.

        A training may also load in its midst, to compare with an older step for example. It has gone back only if it
        saves next at a step that it had saved before, or at an older one.
        """
        went_back = self._last_saved is None or step <= self._last_saved
        if self._loaded is not None and went_back:
            self._resumed = self._loaded
        self._loaded = None
        self._last_saved = step
        return self._resumed
