"""What the client demands of the memory that an agent lends it, and when it lets go of that."""

import numpy as np

import cairn
from cairn._base import probes
from testing.errors import raises_error


def test_memory_that_others_may_still_write_is_refused(agent, client):
    client.save(1, {"w": np.arange(8)}).wait()
    agent.unsealed = True
    with raises_error("MEMORY_UNSEALED"):
        client.load({"w": np.zeros(8, np.int64)})
    agent.unsealed = False
    target = {"w": np.zeros(8, np.int64)}
    client.load(target)
    assert (target["w"] == np.arange(8)).all()


def test_memory_that_could_be_cut_off_is_refused(agent):
    agent.cuttable = True
    agent.close()
    agent.start()
    with raises_error("MEMORY_UNSEALED"):
        cairn.connect(agent.address)


def test_descriptor_socket_of_another_ranks_agent_is_refused_by_name(agent, client):
    """Two containers of one machine have sockets at the same path, and this one sees the wrong one."""
    agent.socket_owner = (1234, 7)
    with raises_error("RANK_CONFLICT") as caught:
        client.save(1, {"w": np.arange(8)})
    assert "--socket-directory" in str(caught.value)
    agent.socket_owner = (1234, 0)
    with raises_error("AGENT_UNREACHABLE"):
        cairn.connect(agent.address)
    agent.socket_owner = None
    client.save(1, {"w": np.arange(8)}).wait()


def test_memory_of_another_users_process_is_refused(agent, client, monkeypatch):
    client.save(1, {"w": np.arange(8)}).wait()
    monkeypatch.setattr(client._session, "owner", client._session.owner + 1)
    with raises_error("PEER_UID"):
        client.load({"w": np.zeros(8, np.int64)})


def test_reason_of_a_vanished_buffer_is_waited_for_as_long_as_the_lease(agent):
    waited = []
    agent.lease_ttl = 0.0
    with (cairn.connect(agent.address, limits=cairn.Limits(blame_most=0.1)) as client,
          probes.at("blame", lambda lease: waited.append(lease))):
        client.save(1, {"w": np.arange(8)}).wait()
        agent.lease_ttl = 40.0  # heard of since
        agent.vanished = True
        with raises_error("AGENT_UNREACHABLE"):
            client.load({"w": np.zeros(8, np.int64)})
    assert waited == [40.0]


def test_closing_says_whether_the_slab_was_let_go(agent):
    client = cairn.connect(agent.address)
    client.save(1, {"w": np.zeros(8)}).wait()
    client.close()
    client = cairn.connect(agent.address)
    slabs = []
    with probes.at("copy", lambda memory, **_: slabs.append(memory.bytes[:4])):
        client.save(2, {"w": np.zeros(8)}).wait()
    client.close()
    assert agent.unmapped == [True, False]
    assert slabs[0].nbytes == 4


def test_one_slab_is_mapped_at_a_time(agent, client):
    for step in range(4):  # this agent makes a new one for each save
        client.save(step, {"w": np.zeros(8)}).wait()
        assert client.status().mapped_slabs == 1
