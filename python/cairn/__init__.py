"""Cairn's client for trainers: save and load distributed state through the agent beside each rank.

    import cairn
    client = cairn.connect()                       # the agent's address: CAIRN_AGENT
    saving = client.save(step, {"w": cairn.Shard(array, global_shape, offset)})
    checkpoint = saving.wait()
    report = client.load({"w": cairn.Shard(array, global_shape, offset)})

See docs/python.md. `cairn.torch` takes state dicts of PyTorch, `cairn.shards` describes the shards of parallel layers,
`cairn.samples` numbers the samples of a run, `cairn.local` starts a coordinator and agents on this machine.
`load_safetensors` needs none of these: it loads the files of a model.
"""

from cairn import checkpoints, eviction, fingerprints, local, samples, shards
from cairn._base.errors import Error
from cairn._base.limits import Limits
from cairn._base.results import Checkpoint, ClientStatus, LoadReport
from cairn._coordinator.retention import PruneChoice
from cairn._state.entries import Alias, PerRank, PerRankValues, Shard, alias, per_rank
from cairn._state.opaque import Opaque
from cairn._state.serializers import register_serializer
from cairn._version import __version__
from cairn.client import Client, Saving, connect
from cairn.fingerprints import Fingerprint, fingerprint
from cairn.safetensors import LoadedFiles, SafetensorsIndex, load_safetensors, safetensors_index

__all__ = [
    "Alias",
    "Checkpoint",
    "Client",
    "ClientStatus",
    "Error",
    "Fingerprint",
    "Limits",
    "LoadReport",
    "LoadedFiles",
    "Opaque",
    "PerRank",
    "PerRankValues",
    "PruneChoice",
    "SafetensorsIndex",
    "Saving",
    "Shard",
    "__version__",
    "alias",
    "checkpoints",
    "connect",
    "eviction",
    "fingerprint",
    "fingerprints",
    "load_safetensors",
    "local",
    "per_rank",
    "register_serializer",
    "safetensors_index",
    "samples",
    "shards",
]
