"""The tests that qemu makes impossible, and what it is of qemu that does.

tools/test --arm64 leaves them out where qemu runs the programs: as a plugin of pytest this skips those of Python, as a
program it prints the filter with which googletest leaves out those of C++.
"""

COUNTED = "the memory of a process is measured, and qemu's own is a part of it"
FORKED = "qemu gives memory to forked children that is not to be inherited (MADV_DONTFORK)"
DESCRIPTORS = "qemu gives the kernel more room for descriptors than the program has"
OWNERS = "qemu knows no sockets of NETLINK_SOCK_DIAG, by which the kernel says whose a connection is"
THREADS = "qemu keeps 280 KB of each thread that has ended, and this test starts thousands"

PYTHON = {
    "tests/corpus/test_shuffle.py::test_line_larger_than_the_budget": COUNTED,
    "tests/corpus/test_shuffle.py::test_resident_size_with_eight_byte_lines": COUNTED,
    "tests/integration/test_export.py::test_a_tensor_above_the_memory_is_streamed": COUNTED,
    "tests/integration/test_shared_memory.py::"
    "test_closed_client_has_nothing_mapped_and_forked_children_never_have": FORKED,
}
CPP = {
    "DescriptorMessageTest.Receive_MoreDescriptorsThanRoom_SaysSoAndOwnsThoseThatCame": DESCRIPTORS,
    "PeerGroupTest.Of_ThisUserOnLoopback_IsTheOwnGroup": OWNERS,
    "PeerGroupTest.Of_ThisUserByAMappedAddress_IsTheOwnGroup": OWNERS,
    "ShuffleInMemoryTest.Shuffle_OutOfCore_AllOrdersEquallyLikely": THREADS,
}


def pytest_collection_modifyitems(items) -> None:
    import pytest

    for item in items:
        reason = PYTHON.get(item.nodeid.partition("[")[0])
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


if __name__ == "__main__":
    print("-" + ":".join(CPP))
