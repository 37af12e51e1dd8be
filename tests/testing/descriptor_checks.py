"""Checks that a forked child has none of the descriptors that were taken.

Each forks, so it must run in a process without gRPC's threads.
"""

import os
import threading

from cairn._agent import descriptor
from cairn._agent.descriptor import Descriptor
from testing.ranks import open_descriptors


def memory() -> int:
    return os.memfd_create("cairn-test")


def in_child(check) -> int:
    """Returns the exit status of a forked child that runs `check`."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = check()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def taken() -> int:
    """Returns how many descriptors of memory() this process has."""
    return open_descriptors("memfd:cairn-test")


def a_child_has_none_and_its_parent_keeps_it():
    with Descriptor(memory) as owner:
        assert in_child(taken) == 0
        os.fstat(owner.number())
        assert taken() == 1
    assert taken() == 0


def spend_time():
    """Leaves another thread time to fork: each call lets go of the interpreter's lock."""
    for _ in range(100):
        os.stat("/")


def a_child_of_another_thread_has_none_of_what_is_being_taken_or_closed():
    """The fork waits. One that does not comes in the middle sooner or later."""
    statuses, ended, close = [], threading.Event(), descriptor._close

    def fork_again_and_again():
        while not ended.is_set():
            statuses.append(in_child(taken))

    def make_slowly():
        made = memory()
        spend_time()
        return made

    def close_slowly(number):
        spend_time()
        close(number)

    descriptor._close = close_slowly
    other = threading.Thread(target=fork_again_and_again)
    other.start()
    try:
        while len(statuses) < 30:
            Descriptor(make_slowly).close()
    finally:
        ended.set()
        other.join()
    assert statuses == [0] * len(statuses)


def a_child_closes_the_others_where_the_program_has_closed_one():
    with Descriptor(memory) as closed, Descriptor(memory), Descriptor(memory):
        os.close(closed.number())
        assert in_child(lambda: taken() + (Descriptor(memory).close() or 0)) == 0


def who_takes_may_fork():
    def fork_and_make():
        assert in_child(lambda: 0) == 0
        return memory()

    Descriptor(fork_and_make).close()


def a_child_takes_its_own():
    def take_two():
        with Descriptor(memory), Descriptor(memory):
            return taken()

    with Descriptor(memory):
        assert in_child(take_two) == 2


def nothing_is_left_where_making_fails():
    try:
        Descriptor(lambda: os.open("/nowhere", os.O_RDONLY))
    except FileNotFoundError:
        pass
    assert in_child(lambda: Descriptor(memory).close() or 0) == 0


ALL = [
    a_child_has_none_and_its_parent_keeps_it,
    a_child_of_another_thread_has_none_of_what_is_being_taken_or_closed,
    a_child_closes_the_others_where_the_program_has_closed_one,
    who_takes_may_fork,
    a_child_takes_its_own,
    nothing_is_left_where_making_fails,
]
