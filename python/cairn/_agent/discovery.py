"""Finds the agent beside this process, and which rank it is, from what launchers leave in the environment."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import sys
from collections.abc import Mapping

from cairn._base.errors import Error

# The rank within the job, as torchrun, srun, Open MPI and other PMI launchers give it, first come first served. Where
# only LOCAL_RANK is known, the job has one machine.
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK")
# These variables say how many ranks the launcher that gave the rank has started.
_WORLD = {"RANK": ("WORLD_SIZE",), "SLURM_PROCID": ("SLURM_NTASKS", "SLURM_NPROCS"),
          "OMPI_COMM_WORLD_RANK": ("OMPI_COMM_WORLD_SIZE",), "PMI_RANK": ("PMI_SIZE",),
          "LOCAL_RANK": ("LOCAL_WORLD_SIZE",)}
# Nobody knows whether an agent that LOCAL_RANK has not chosen belongs to this machine's job alone.
_GLOBAL_RANK = tuple(variable for variable in _RANK if variable != "LOCAL_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_FIELD = re.compile(r"\{(\w*)\}")


@dataclasses.dataclass(frozen=True)
class AgentPlace:
    """Where this trainer's agent listens, and which rank's agent that has to be.

    Attributes:
      rank: the rank whose agent must be there; None if nobody says it.
      variable: the variable that gave the rank.
      world: how many ranks the launcher that gave the rank has started; None if it does not say so.
      world_variable: the variable that gave the world.
      given: the address was not chosen by the rank. Then a job of one rank takes any process, because a launcher may
        start many such jobs.
    """

    address: str
    rank: int | None = None
    variable: str = ""
    world: int | None = None
    world_variable: str = ""
    given: bool = False

    def placed(self, environment: Mapping[str, str] = os.environ) -> AgentPlace:
        """Returns the same with the rank that torch.distributed or the launcher says, if the address was not chosen by
        a rank.

        Raises:
          Error: BAD_REQUEST (a rank or a number of ranks is no number).
        """
        if self.rank is not None:
            return self
        if (of_torch := _of_torch()) is not None:
            return dataclasses.replace(self, rank=of_torch[0], variable="torch.distributed.get_rank()",
                                       world=of_torch[1], world_variable="torch.distributed.get_world_size()",
                                       given=True)
        rank = _number(environment, _GLOBAL_RANK)
        return dataclasses.replace(_found(self.address, rank, environment), given=True)

    def check(self, rank: int, world: int, job: str) -> None:
        """Raises WORLD_SIZE_MISMATCH or RANK_CONFLICT if the agent that was found there, which is that of `rank` of a
        job of `world` ranks, cannot be that of this process."""
        if self.given and world == 1:
            return
        if self.world is not None and world != self.world:
            # Without this, the ranks that have an agent would commit checkpoints that lack the state of the others.
            raise Error("WORLD_SIZE_MISMATCH", f"the agent at {self.address} is that of rank {rank} of {world} of job "
                        f"{job}, and this process has {self.variable}={self.rank} of "
                        f"{self.world_variable}={self.world}",
                        {"job": job, "rank": str(self.rank), "agent_rank": str(rank), "agent_world_size": str(world),
                         "next": "Start as many agents as trainers: `cairn run --ranks` and `cairn up --ranks` take "
                         "the number of trainers of one machine. A trainer that is a job by itself, whatever the "
                         "launcher says, gives its agent's address to cairn.connect; and one whose job has other ranks "
                         "than its launcher's gives its rank= and world_size= as well."})
        if self.rank is not None and rank != self.rank:
            # Without this, each of the two would be given the other's random state, objects and shards.
            raise Error("RANK_CONFLICT", f"the agent at {self.address} is that of rank {rank} of job {job}, and this "
                        f"process has {self.variable}={self.rank}",
                        {"job": job, "rank": str(self.rank), "agent_rank": str(rank), "agent_world_size": str(world),
                         "next": f"Let rank {self.rank} connect to the agent of rank {self.rank}: CAIRN_AGENT with "
                         "{rank} in its path, or a directory of agents, leads each rank to its own. If the launcher "
                         "gives the numbers as its processes come, give each agent that of its machine's processes. A "
                         "trainer whose rank is not the launcher's says it by cairn.connect(rank=...)."})

    def refused(self, error: Error) -> Error:
        """Returns the error of an agent that has refused this process for its place, in the words of check()."""
        rank, world = error.metadata.get("agent_rank", ""), error.metadata.get("agent_world_size", "")
        if error.reason in ("RANK_CONFLICT", "WORLD_SIZE_MISMATCH") and rank.isdigit() and world.isdigit():
            try:
                self.check(int(rank), int(world), error.metadata.get("job", ""))
            except Error as said:
                return said
        return error


def find(environment: Mapping[str, str] = os.environ) -> AgentPlace:
    """Returns the address by CAIRN_AGENT, or where agents without --socket-directory have their sockets.

    CAIRN_AGENT is an address, an address with "{rank}" or "{local_rank}" in it, or a directory: then the agent is
    rank<N>/agent.sock or <N>/agent.sock below it, or the only one, agent.sock. A process without a rank takes the agent
    of rank 0 if there is none of rank 1, as a job of one process needs no launcher.

    Raises:
      Error: AGENT_UNREACHABLE (no address can be told, or no socket is in the directory), BAD_REQUEST (a rank or a
        number of ranks is no number).
    """
    given = environment.get("CAIRN_AGENT", "")
    if not given:
        return _by_default(environment)
    path = given.removeprefix("unix://").removeprefix("unix:")
    if "{" in given:
        return _filled(given, environment)
    if (given.startswith(("/", "unix:"))) and os.path.isdir(path):
        return _in_directory(pathlib.Path(path), environment)
    return AgentPlace(given)


def _of_torch() -> tuple[int, int] | None:
    """Returns rank and number of ranks of this process's group in torch, if it has one with other processes.

    A launcher may have started a process that starts others, each of which inherits its variables and gets another
    rank: the group knows better.
    """
    distributed = sys.modules.get("torch.distributed")  # cairn itself does not import torch
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    if distributed.get_world_size() == 1 or distributed.get_backend() == "fake":
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _number(environment: Mapping[str, str], variables: tuple[str, ...],
            what: str = "rank") -> tuple[int, str] | None:
    for variable in variables:
        text = environment.get(variable, "")
        if not text:
            continue
        if not text.isascii() or not text.isdigit():
            raise Error("BAD_REQUEST", f"{variable}={text} is no {what}")
        return int(text), variable
    return None


def _found(address: str, rank: tuple[int, str] | None, environment: Mapping[str, str]) -> AgentPlace:
    """Returns an address that was chosen by `rank`, if that is not None, with the world that goes with it."""
    if rank is None:
        return AgentPlace(address)
    world = _number(environment, _WORLD[rank[1]], "number of ranks")
    return AgentPlace(address, *rank) if world is None else AgentPlace(address, *rank, *world)


def _filled(pattern: str, environment: Mapping[str, str]) -> AgentPlace:
    rank = None
    numbers = {}
    for field in set(_FIELD.findall(pattern)):
        variables = {"rank": _RANK, "local_rank": _LOCAL_RANK}.get(field)
        if variables is None:
            raise Error("BAD_REQUEST", f"CAIRN_AGENT={pattern}: {{{field}}} is neither {{rank}} nor {{local_rank}}")
        number = _number(environment, variables)
        if number is None and _is_alone(pattern, field):
            numbers[field] = "0"
            continue
        if number is None:
            raise Error("AGENT_UNREACHABLE", f"CAIRN_AGENT={pattern}, and this process has no rank: none of "
                        f"{', '.join(variables)} is set",
                        {"next": "Start it by a launcher such as torchrun or srun, or set RANK."})
        numbers[field] = str(number[0])
        if field == "rank":
            rank = number
    return _found(_FIELD.sub(lambda field: numbers[field[1]], pattern), rank, environment)


def _is_alone(pattern: str, field: str) -> bool:
    """Returns True if the agent of rank 0 has a socket here and that of rank 1 has none. The agents of a pod may come
    after their trainers: of the first rank of a machine, it is enough that there is no second one."""
    path = pattern.removeprefix("unix://").removeprefix("unix:")
    first, second = (pathlib.Path(path.replace(f"{{{field}}}", str(rank))) for rank in range(2))
    return (field == "local_rank" or first.exists()) and not second.exists()


def _in_directory(directory: pathlib.Path, environment: Mapping[str, str]) -> AgentPlace:
    number = _number(environment, _RANK)
    looked = []
    if number is not None:
        looked = [directory / f"rank{number[0]}" / "agent.sock", directory / str(number[0]) / "agent.sock"]
        for socket in looked:
            if socket.exists():
                return _found(f"unix:{socket}", number, environment)
    only = directory / "agent.sock"
    if only.exists():
        return AgentPlace(f"unix:{only}")
    whose = f" of rank {number[0]} ({number[1]})" if number is not None else "; this process has no rank (RANK)"
    raise Error("AGENT_UNREACHABLE", f"CAIRN_AGENT={directory} is a directory without the socket of an agent{whose}: "
                f"nothing is at {', '.join(map(str, [*looked, only]))}")


def _by_default(environment: Mapping[str, str]) -> AgentPlace:
    """Returns the socket in the agent's default directory (DefaultSocketDirectory of agent/sockets)."""
    number = _number(environment, _RANK)
    job = environment.get("CAIRN_JOB", "")
    if number is None or not job:
        raise Error("AGENT_UNREACHABLE", "no agent's address: give one to cairn.connect or set CAIRN_AGENT",
                    {"next": "Start the training by `cairn run`, which sets it; `cairn up` prints it. With CAIRN_JOB "
                     "and RANK an agent without --socket-directory is found, too."})
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    base = runtime if runtime.startswith("/") and os.access(runtime, os.W_OK) else "/tmp"
    name = f"{job.replace('/', '_')}-{number[0]}"
    return _found(f"unix:{base}/cairn-{os.geteuid()}/{name}/agent.sock", number, environment)
