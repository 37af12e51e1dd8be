"""Runs tasks on Ray or Spark for a command of `cairn corpus`. python_frames.py comes before this text, and
engine_session.cc runs both.

The content of each frame is JSON. The first one from the other side is O, and says which engine, and what all tasks
share: {"engine", "address", "program", "version", "cpus", "directory"}. Each further one is S, a stage, whose tasks
run at the same time: {"tasks": [{"name", "words", "output", "bytes"}]}. `words` is a command line behind `cairn`; to
the word whose number is `output`, each try of a task adds letters of its own, so two tries write different files. The
end of the input ends everything that still runs. The answers are A, or E if nothing can be run:

    {"ready": slots}                            how many tasks may run at the same time
    {"done": task, "node", "report"}            `report` is what the program printed
    {"failed": task, "node", "reason", "message", "next"}
    {"end": true}                               the stage has ended
"""
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

TRIES = 4
# Errors that another try, perhaps on another node, may not meet. What is wrong with the input stays wrong.
WORTH_A_TRY = {"NO_SPACE", "STORAGE_ERROR", "STORAGE_READ_ONLY", "FSYNC_FAILED", "MEMORY_LIMIT", "CHECKSUM_MISMATCH"}
# When one task has failed, others may fail for other reasons, which are told together.
MORE_FAILURES_SECONDS = 15.0
POLL_SECONDS = 0.2
CONNECT_SECONDS = 10.0
MARK = "cairn-failure:"
FOUND = {}  # on a node: what programs have said of themselves, by their paths and states
INSTALL = "install cairn-checkpoint, of the version that gives this command, on each node"


def unusable(message, next):
    return Failure("UNSUPPORTED", message, next)


# ---- on the nodes ----


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def find_program(shared):
    """The program that gave the command, if the node has that path too; else that of the node's Python; else PATH's."""
    beside = os.path.join(os.path.dirname(sys.executable), "cairn")
    for place in (shared["program"], beside):
        if os.access(place, os.X_OK):
            return place
    return shutil.which("cairn")


def version_of(program):
    state = os.stat(program)
    key = (program, state.st_ino, state.st_mtime_ns, state.st_size)
    if key not in FOUND:
        done = subprocess.run([program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace")
        FOUND[key] = done.stdout.strip()
    return FOUND[key]


def failure(reason, message, next=""):
    return {"reason": reason, "message": message[:2000], "next": next}


def run_program(shared, task):
    """Returns ("report", what the program printed) or ("failure", why it failed)."""
    program = find_program(shared)
    if program is None:
        return "failure", failure("UNSUPPORTED", "there is no program `cairn`", INSTALL)
    version = version_of(program)
    if version != shared["version"]:
        return "failure", failure("UNSUPPORTED", f"{program} is {version or 'no cairn'}, this is {shared['version']}",
                                  INSTALL)
    if not os.path.isdir(shared["directory"]):
        return "failure", failure("INPUT_UNREADABLE", f"there is no directory {shared['directory']}",
                                  "Give the command in a directory that all nodes share.")
    words = list(task["words"])
    if task["output"] is not None:
        words[task["output"]] += "." + uuid.uuid4().hex[:12]
    child = subprocess.Popen([program, "--format=json", *words], cwd=shared["directory"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=die_with_parent)
    said, errors = child.communicate()
    if child.returncode == 0:
        return "report", json.loads(said)
    text = errors.decode(errors="replace")
    begin = text.rfind('{\n  "error"')
    try:
        error = json.loads(text[begin:])["error"]
        return "failure", failure(error["reason"], error["message"], error["metadata"].get("next", ""))
    except (ValueError, KeyError):
        pass
    if child.returncode < 0:
        how = f"the program was ended by signal {-child.returncode}"
    else:
        how = f"the program has ended with status {child.returncode}"
    return "failure", failure("TRANSPORT_FAILED", f"{how}: {text.strip()[-300:]}" if text.strip() else how)


def run_task(shared, task):
    """Runs on a node. Raises OSError where another try is worth it."""
    kind, content = run_program(shared, task)
    answer = {"node": socket.gethostname()}
    if kind == "report":
        answer.update(done=task["number"], report=content)
        return answer
    answer.update(content, failed=task["number"])
    if content["reason"] in WORTH_A_TRY or content["reason"] == "TRANSPORT_FAILED":
        raise OSError(MARK + json.dumps(answer))
    return answer


# ---- on the machine of the command ----


def answer_of(error, task):
    """Finds the answer of a last try in an engine's error, which may have it inside."""
    text = str(error)
    if MARK in text:
        try:
            return json.JSONDecoder().raw_decode(text[text.rindex(MARK) + len(MARK):])[0]
        except ValueError:
            pass
    lines = text.strip().splitlines() or [type(error).__name__]
    why = failure("TRANSPORT_FAILED", f"its worker was lost {TRIES} times: {lines[0][:300]}")
    return {**why, "failed": task["number"], "node": ""}


def check_reachable(address):
    """Raises OSError if nothing answers at ADDRESS, for which an engine might wait without an end."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit() and "," not in host:  # Spark takes several masters
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()


class RayEngine:
    def __init__(self, shared):
        try:
            import ray
        except ImportError as error:
            raise unusable(f"{sys.executable} has no Ray: {error}", "Install ray for this Python, or name another "
                           "one by the environment variable CAIRN_PYTHON.") from None
        self.ray, self.shared = ray, shared
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # on a busy machine
        try:
            check_reachable(shared["address"])
            ray.init(address=shared["address"] or None, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # Ray raises many kinds
            raise unusable(f"Ray at {shared['address'] or 'this machine'}: {error}", "Give --engine-address "
                           "the address of a running cluster, or none to use this machine.") from None
        self.slots = int(ray.cluster_resources().get("CPU", 1) // shared["cpus"])
        if self.slots < 1:
            raise unusable(f"no node of the cluster has {shared['cpus']} CPUs", "Give fewer threads or workers.")
        self.remote = ray.remote(num_cpus=shared["cpus"], max_retries=TRIES - 1, retry_exceptions=[OSError],
                                 scheduling_strategy="SPREAD")(run_task)

    def answers(self, tasks):
        running = {self.remote.options(name=f"cairn corpus {task['name']}").remote(self.shared, task): task
                   for task in tasks}
        try:
            while running:
                ready, _ = self.ray.wait(list(running), timeout=POLL_SECONDS)
                for reference in ready:
                    task = running.pop(reference)
                    try:
                        yield self.ray.get(reference)
                    except Exception as error:  # Ray has many kinds, and each means that the last try failed
                        yield answer_of(error, task)
                if not ready:
                    yield None
        finally:
            for reference in running:
                self.ray.cancel(reference, force=True)

    def stop(self):
        self.ray.shutdown()


class SparkEngine:
    def __init__(self, shared):
        try:
            import pyspark
            from pyspark.accumulators import AccumulatorParam
        except ImportError as error:
            raise unusable(f"{sys.executable} has no Spark: {error}", "Install pyspark for this Python, or name "
                           "another one by the environment variable CAIRN_PYTHON.") from None

        class Lists(AccumulatorParam):
            def zero(self, value):
                return []

            def addInPlace(self, value1, value2):
                value1 += value2
                return value1

        self.shared, self.lists = shared, Lists()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        conf = pyspark.SparkConf().setAppName("cairn corpus").set("spark.ui.showConsoleProgress", "false")
        conf.set("spark.task.maxFailures", str(TRIES)).set("spark.task.cpus", str(shared["cpus"]))
        if shared["address"]:
            conf.setMaster(shared["address"])
        elif not conf.contains("spark.master"):
            conf.setMaster(f"local[*,{TRIES}]")
        try:
            check_reachable(shared["address"])
            self.context = pyspark.SparkContext(conf=conf)
        except Exception as error:  # of Java, in many kinds
            text = str(error).strip().splitlines() or [type(error).__name__]
            raise unusable(f"Spark at {shared['address'] or 'this machine'}: {text[0][:300]}", "Install Java 17 or "
                           "newer if it is missing, and give --engine-address the master's URL.") from None
        self.context.setLogLevel("OFF")
        self.slots = max(1, self.context.defaultParallelism // shared["cpus"])

    def answers(self, tasks):
        found, shared, ended = self.context.accumulator([], self.lists), self.shared, []

        def work():
            try:
                self.context.parallelize(tasks, len(tasks)).foreach(lambda task: found.add([run_task(shared, task)]))
                ended.append(None)
            except Exception as error:  # the job has ended with it
                ended.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        given, left = 0, {task["number"]: task for task in tasks}
        try:
            while True:
                over = bool(ended)
                answers = found.value[given:]
                given += len(answers)
                for answer in answers:
                    left.pop(answer.get("done", answer.get("failed")), None)
                    yield answer
                if over:
                    break
                if not answers:
                    thread.join(POLL_SECONDS)
                    yield None
            if ended[0] is not None:
                yield answer_of(ended[0], next(iter(left.values())))
        finally:
            if not ended:
                self.context.cancelAllJobs()
                thread.join(10)

    def stop(self):
        self.context.stop()


def run_stage(engine, tasks, say):
    for number, task in enumerate(tasks):
        task["number"] = number
    until = None
    answers = engine.answers(tasks)
    for answer in answers:
        if answer is not None:
            say(answer)
            if "failed" in answer and until is None:
                until = time.monotonic() + MORE_FAILURES_SECONDS
        if until is not None and time.monotonic() > until:
            break
    answers.close()  # ends what still runs
    say({"end": True})


def main():
    answers, stages = os.dup(1), os.dup(0)
    os.dup2(2, 1)  # the engines print what is no answer
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    saying = threading.Lock()

    def send(content):
        with saying:
            write_all(content, answers)

    def say(answer):
        send(frame(b"A", json.dumps(answer).encode()))

    first = read_frame(stages)
    if first is None:
        return
    shared = json.loads(first[1])
    try:
        engine = (RayEngine if shared["engine"] == "ray" else SparkEngine)(shared)
    except Failure as failure:
        send(failure_frame(failure))
        return
    say({"ready": engine.slots})

    def work(content):
        try:
            run_stage(engine, json.loads(content)["tasks"], say)
        except Exception as error:  # told to the command, which ends this process
            lines = str(error).strip().splitlines() or [type(error).__name__]
            send(failure_frame(Failure("TRANSPORT_FAILED", f"{shared['engine']} failed: {lines[0][:300]}", "")))

    # The stages run in a thread of their own, so that the end of the input is seen at once.
    while (stage := read_frame(stages)) is not None:
        threading.Thread(target=work, args=(stage[1],), daemon=True).start()
    engine.stop()
    os._exit(0)


if __name__ == "__main__":
    main()
