"""How long a client waits for others, and how much it takes at a time."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Limits:
    """How long a client waits for others, and how much it takes at a time.

    The defaults are right for a training. Others are for tests, and for machines that are unlike all others. What a
    method's own `timeout` says is not among these. All times are seconds.

    Attributes:
      agent_return: for so long a call waits for an agent that is gone, since its next process may be starting.
      answer_grace: an agent answers a call as soon as the time is over for which the call lets it wait. So many seconds
        later the agent is taken for dead.
      least_grace: for so long even a call whose own time is over waits for the answer of a busy machine.
      held_call: for so long at most one call lets the agent wait; a longer wait is made of several calls.
      save_grace: so long after the timeout of a save the client still waits for the agent's word, because the agent can
        say which rank was late.
      load_outcome: for so long a load that was given up waits for the job's word about it.
      interrupted_outcome: the same after Ctrl-C.
      agreement: for so long save_requested() waits at a step that is being agreed on.
      end_of_prepare: for so long a prepare() that has failed tells the agent so.
      other_thread: for so long close() waits for a call of another thread.
      watch_period: the time between two looks for another process of the agent.
      blame_leases, blame_least, blame_most: a load whose source of bytes is gone waits for the name of the rank that is
        to blame: so many leases of an agent, but at least and at most so many seconds.
      known_layouts: so many layouts need not be sent to the agent again, which keeps about as many.
      checked_overlaps: so many overlapped saves prove that nothing was torn, if save() is not told otherwise.
      ring_slot_bytes: size of each of the two pinned buffers through which arrays on GPUs go.
      pin_piece_bytes: so much memory is pinned at a time, because the driver stalls all other calls meanwhile.
      overlap_chunk_bytes: so much is copied at a time by an overlapped save. Other copies find their way between two
        chunks.
      driver_release: for so long the driver is waited for when memory is given up.
    """

    agent_return: float = 10.0
    answer_grace: float = 10.0
    least_grace: float = 2.0
    held_call: float = 5.0
    save_grace: float = 5.0
    load_outcome: float = 3.0
    interrupted_outcome: float = 1.0
    # This is longer than the agents need to answer and the coordinator to decide. A rank that freezes meanwhile costs
    # it once.
    agreement: float = 5.0
    end_of_prepare: float = 1.0
    other_thread: float = 1.0
    watch_period: float = 0.5
    blame_leases: float = 1.5
    blame_least: float = 5.0
    blame_most: float = 300.0
    known_layouts: int = 8
    checked_overlaps: int = 3
    ring_slot_bytes: int = 64 << 20
    pin_piece_bytes: int = 256 << 20
    overlap_chunk_bytes: int = 16 << 20
    driver_release: float = 5.0

    def call_timeout(self, max_wait: float, remaining: float) -> float:
        """Returns after how many seconds a call takes its agent for dead.

        A frozen agent must not hold the caller for long beyond its deadline.

        Args:
          max_wait: seconds for which the call lets the agent wait.
          remaining: seconds that the caller has left.
        """
        return min(max_wait + self.answer_grace, max(remaining, max_wait) + self.least_grace)


DEFAULT = Limits()
