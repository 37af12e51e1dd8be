"""The diffs of docs/migration.md and docs/trainers.md turn scripts that save by other libraries into ones that save by
Cairn.

Each script trains from the beginning, saves by its library, and goes on from that checkpoint after the diff, and from
Cairn's own; its losses are those of the script before.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import cairn
from testing.ports import reserve_port
from testing.ranks import command, until

pytestmark = pytest.mark.interop

SCRIPTS = pathlib.Path(__file__).with_name("migration")
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def diff_of(name):
    """Returns the hunks of a diff of the pages: lists of lines."""
    text = (DOCS / "migration.md").read_text() + (DOCS / "trainers.md").read_text()
    found = re.findall(rf"^```diff {name}\n(.*?)^```$", text, re.M | re.S)
    assert len(found) == 1, f"the pages have {len(found)} diffs named {name}"
    return [hunk.splitlines() for hunk in re.split(r"^@@.*\n", found[0], flags=re.M)]


def changed(name):
    """Returns the script after the diff. Each hunk must fit at one place."""
    text = (SCRIPTS / f"{name}.py").read_text()
    for hunk in diff_of(name):
        before = "".join(f"{line[1:]}\n" for line in hunk if line[0] in " -")
        after = "".join(f"{line[1:]}\n" for line in hunk if line[0] in " +")
        if not before:  # lines that are added alone stand before the first import
            at = text.index("import ")
            text = text[:at] + after + text[at:]
            continue
        assert text.count(before) == 1, f"the hunk of {name} fits at {text.count(before)} places:\n{before}"
        text = text.replace(before, after)
    return text


class Job:
    """Runs a script, before or after its diff, in one directory."""

    def __init__(self, name, directory, cluster):
        self.name, self.directory, self.cluster = name, directory, cluster

    def run(self, script, *arguments):
        """Returns the losses by step."""
        path = self.directory / "training.py"
        path.write_text(script)
        with reserve_port() as holder:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0",
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(holder.getsockname()[1]),
                           "GLOO_SOCKET_IFNAME": "lo", "DS_ACCELERATOR": "cpu", "RAY_TRAIN_V2_ENABLED": "1",
                           "CAIRN_AGENT": self.cluster.agents[0].address,
                           "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1])}
            done = subprocess.run([sys.executable, path, *arguments], env=environment, cwd=self.directory,
                                  capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        return {int(step): loss for step, loss in re.findall(r"^step (\d+) loss (\S+)$", done.stdout, re.M)}

    def before(self, *arguments):
        return self.run((SCRIPTS / f"{self.name}.py").read_text(), *arguments)

    def after(self, *arguments):
        return self.run(changed(self.name), *arguments)

    def committed(self, steps):
        with self.cluster.connect(0) as client:
            until(lambda: client.checkpoints() == steps, text=f"{client.checkpoints()}")


@pytest.fixture
def job(tmp_path, request):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        yield Job(request.param, tmp_path, cluster)


def named(name):
    return pytest.mark.parametrize("job", [name], indirect=True)


@pytest.mark.parametrize("name", ["dcp", "megatron", "deepspeed", "torch_save", "lightning", "accelerate", "ray"])
def test_Diff_ChangesAtMostThreeLines(name):
    lines = [line for hunk in diff_of(name) for line in hunk]
    assert 1 <= sum(line[0] == "+" for line in lines) <= 3
    assert changed(name) != (SCRIPTS / f"{name}.py").read_text()


def test_Diff_OfTorchtitan_IsWhatTheExampleHas():
    """test_torchtitan.py trains with these lines."""
    added = [line[1:] for hunk in diff_of("torchtitan") for line in hunk if line[0] == "+"]
    example = SCRIPTS.parents[2] / "examples/torchtitan/train.py"
    assert 1 <= len(added) <= 3 and set(added) <= set(example.read_text().splitlines())


@named("lightning")
def test_Lightning_GoesOverAndBack(job):
    pytest.importorskip("lightning.pytorch")
    whole = job.before("--steps=15")
    assert job.after("--resume=checkpoints/step=3.ckpt", "--steps=9") == {step: whole[step] for step in range(4, 10)}
    job.committed([6, 9])
    assert job.after("--steps=12") == {step: whole[step] for step in (10, 11, 12)}
    script = changed("lightning")
    fit = next(line for line in script.splitlines() if "trainer.fit" in line)
    assert job.run(script.replace(fit, f'{fit}\n    trainer.save_checkpoint("back.ckpt")'), "--steps=12") == {}
    assert job.before("--resume=back.ckpt", "--steps=15") == {step: whole[step] for step in (13, 14, 15)}


@named("accelerate")
def test_Accelerate_GoesOverAndBack(job, tmp_path):
    pytest.importorskip("accelerate")
    whole = job.before("--steps=12")
    script = changed("accelerate")
    restore = next(line for line in script.splitlines() if "restore_or_initialize" in line)
    once = script.replace(restore, f"{restore}\n    start = load(accelerator, arguments.resume)")
    assert job.run(once, "--resume=3", "--steps=9") == {step: whole[step] for step in range(4, 10)}
    job.committed([6, 9])
    assert job.after("--steps=11") == {step: whole[step] for step in (10, 11)}
    shutil.rmtree(tmp_path / "checkpoints")
    back = script.replace(restore, f'{restore}\n    accelerator.save_state("checkpoints/9")')
    assert job.run(back, "--steps=9") == {}
    assert job.before("--resume=9", "--steps=12") == {step: whole[step] for step in (10, 11, 12)}


@named("ray")
def test_Ray_GoesOver(job, tmp_path):
    pytest.importorskip("ray.train")
    whole = job.before("--steps=9")
    shutil.rmtree(tmp_path / "checkpoints")
    assert job.after("--steps=6") == {step: whole[step] for step in range(1, 7)}
    job.committed([3, 6])
    assert job.after("--steps=9") == {step: whole[step] for step in (7, 8, 9)}


@named("dcp")
def test_Dcp_GoesOverAndBack(job, tmp_path):
    whole = job.before("--steps=12")
    shutil.rmtree(tmp_path / "checkpoints")
    assert job.before("--steps=3") == {step: whole[step] for step in (1, 2, 3)}
    assert job.after("--resume=3", "--steps=9") == {step: whole[step] for step in range(4, 10)}
    job.committed([6, 9])
    assert job.after("--resume=6", "--steps=8") == {step: whole[step] for step in (7, 8)}
    command("export", "demo@9", "--root", str(tmp_path / "root"), "--to", str(tmp_path / "checkpoints/9"), "--as",
            "dcp")
    assert job.before("--resume=9", "--steps=12") == {step: whole[step] for step in (10, 11, 12)}


@named("megatron")
def test_Megatron_GoesOverAndBack(job, tmp_path):
    pytest.importorskip("megatron.core")
    whole = job.before("--steps=12")
    shutil.rmtree(tmp_path / "checkpoints")
    job.before("--steps=3")
    assert job.after("--resume=3", "--steps=9") == {step: whole[step] for step in range(4, 10)}
    job.committed([6, 9])
    assert job.after("--resume=6", "--steps=8") == {step: whole[step] for step in (7, 8)}
    ours, back = tmp_path / "checkpoints/iter_0000009", tmp_path / "back"
    command("export", "demo@9", "--root", str(tmp_path / "root"), "--to", str(back), "--as", "megatron")
    shutil.copy(ours / "common.pt", back)
    shutil.rmtree(ours)
    back.rename(ours)
    assert job.before("--resume=9", "--steps=12") == {step: whole[step] for step in (10, 11, 12)}


@named("deepspeed")
def test_DeepSpeed_GoesOver(job, tmp_path):
    pytest.importorskip("deepspeed")
    whole = job.before("--steps=9")
    shutil.rmtree(tmp_path / "checkpoints")
    job.before("--steps=3")
    # A source has no step of the job, so the script is told no step besides.
    script = changed("deepspeed").replace("engine, arguments.resume, source", "engine, source")
    assert job.run(script, "--resume=3", f"--source={tmp_path}/checkpoints/global_step3", "--steps=6") == {
        step: whole[step] for step in (4, 5, 6)}
    job.committed([6])
    assert job.after("--resume=6", "--steps=9") == {step: whole[step] for step in (7, 8, 9)}


@named("torch_save")
def test_TorchSave_GoesOverAndBack(job, tmp_path):
    whole = job.before("--steps=12")
    shutil.rmtree(tmp_path / "checkpoints")
    job.before("--steps=3")
    root = tmp_path / "imported"
    command("import", str(tmp_path / "checkpoints/3.pt"), "--to", "demo@3", "--root", str(root))
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        job = Job("torch_save", tmp_path, cluster)
        first = changed("torch_save").replace("initialize(state)", "initialize(state, strict=False)")
        assert job.run(first, "--steps=6") == {step: whole[step] for step in (4, 5, 6)}
        job.committed([3, 6])
        assert job.after("--steps=9") == {step: whole[step] for step in (7, 8, 9)}
        job.committed([3, 6, 9])
        script = changed("torch_save")
        restore = next(line for line in script.splitlines() if "restore_or_initialize" in line)
        back = script.replace(restore, f'{restore}\n    save(state, f"checkpoints/{{start}}.pt", start)')
        assert job.run(back, "--steps=9") == {}
    assert job.before(f"--resume={tmp_path}/checkpoints/9.pt", "--steps=12") == {
        step: whole[step] for step in (10, 11, 12)}
