"""What processes leave behind that are killed or can remove nothing: the whole tree of a root is listed."""

import os
import re
import signal
import subprocess

import numpy as np
import pytest

import cairn
from testing.ranks import on_ranks

# At the call of a number it kills the process, or fails the removals of a name from then on.
SHIM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int calls;
static void count(void) {
  const char *at = getenv("SHIM_KILL_AT");
  if (at != NULL && __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) == atoi(at)) syscall(SYS_kill, getpid(), SIGKILL);
}
static int refused(const char *name) {
  const char *end = getenv("SHIM_KEEP");
  size_t length = strlen(name), tail = end == NULL ? 0 : strlen(end);
  if (end == NULL || length < tail || strcmp(name + length - tail, end) != 0) return 0;
  errno = EIO;
  return 1;
}
int linkat(int a, const char *from, int b, const char *to, int flags) {
  int result = syscall(SYS_linkat, a, from, b, to, flags);
  count();
  return result;
}
int renameat(int a, const char *from, int b, const char *to) {
  int result = syscall(SYS_renameat2, a, from, b, to, 0);
  count();
  return result;
}
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
  if (flags != 0 && getenv("SHIM_NO_RENAME") != NULL) { errno = EINVAL; return -1; }
  return syscall(SYS_renameat2, a, from, b, to, flags);
}
int unlinkat(int directory, const char *name, int flags) {
  count();
  return refused(name) ? -1 : syscall(SYS_unlinkat, directory, name, flags);
}
"""
# All that may stand in a root of one job.
KNOWN = re.compile(r"\.cairn(/(epoch|address|root-proof|token|transfer\.secret|tombstone-room|plans(/\w+\.plan)?))?|"
                   r"demo|demo/\d{12}(/\d{4}(/\.owner|/rank\d{5}-bin\d\d\.safetensors)?|/\d{4}\.verdict)?")


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    path = tmp_path_factory.mktemp("shim") / "shim.so"
    done = subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", path], input=SHIM, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return path


def unknown(root) -> list[str]:
    names = [str(path.relative_to(root)) for path in root.rglob("*")]
    return sorted(name for name in names if not KNOWN.fullmatch(name))


def save(root, *steps: int) -> None:
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        on_ranks(cluster, lambda _, client: [client.save(step, {"w": np.full(4096, step)}).wait(60) for step in steps])
    assert not unknown(root)


@pytest.mark.parametrize("call", range(1, 13))
def test_a_coordinator_that_is_killed_at_its_start_leaves_nothing_for_ever(tmp_path, shim, call):
    root = tmp_path / "root"
    environment = {**os.environ, "LD_PRELOAD": str(shim), "SHIM_KILL_AT": str(call)}
    for _ in range(2):
        process = subprocess.Popen([cairn.local.binary("cairn-coordinator"), f"--root={root}"], env=environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        process.stdout.readline()  # it serves, or was killed before
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        process.stdout.close()
    save(root, 1)


@pytest.mark.parametrize("renames", [True, False], ids=["renames", "links"])
def test_a_name_of_a_bin_that_cannot_be_removed_does_not_stay(tmp_path, shim, monkeypatch, renames):
    root = tmp_path / "root"
    monkeypatch.setenv("LD_PRELOAD", str(shim))
    monkeypatch.setenv("SHIM_KEEP", ".partial")
    if not renames:
        monkeypatch.setenv("SHIM_NO_RENAME", "1")  # as NFS
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        on_ranks(cluster, lambda _, client: client.save(1, {"w": np.ones(4096)}).wait(60))
        left = unknown(root)
    assert bool(left) != renames and all(name.endswith(".partial") for name in left), left
    for name in ("LD_PRELOAD", "SHIM_KEEP", "SHIM_NO_RENAME"):
        monkeypatch.delenv(name, raising=False)
    save(root, 2)


def test_file_of_a_probe_that_a_killed_coordinator_has_left_is_removed(tmp_path):
    root = tmp_path / "root"
    save(root, 1)
    (root / ".cairn/.tmp-0123456789abcdef").write_text("1")
    save(root, 2)
