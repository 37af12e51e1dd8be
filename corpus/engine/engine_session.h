// Runs commands of `cairn corpus` as tasks of Ray or Spark, which place them, and try them again when a worker is lost.
// A process of Python (engine_driver.py) speaks with the engine.
#ifndef CAIRN_CORPUS_ENGINE_ENGINE_SESSION_H_
#define CAIRN_CORPUS_ENGINE_ENGINE_SESSION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "corpus/io/python_process.h"

namespace cairn::corpus {

struct EngineChoice {
  std::string engine;   // "ray" or "spark"
  std::string address;  // of a running cluster, as the engine names it; empty: what its own settings say
  int cpus = 1;         // of each task
};

struct EngineTask {
  std::string name;                // for people: "part 3 of 16"
  std::vector<std::string> words;  // the command line behind `cairn`
  // The number of the word that names the output. Each try of the task adds letters of its own to it, so a try that is
  // thought to be lost harms no other one. Nothing: the command writes what all tries may write.
  std::optional<size_t> output;
  uint64_t bytes = 0;  // of work, for progress
};

// Written by one thread, read by others.
struct EngineProgress {
  std::atomic<uint64_t> tasks{0}, tasks_done{0}, bytes{0}, bytes_done{0};
};

// Ends all tasks when it goes. Not thread-safe.
class EngineSession {
 public:
  // Connects to the cluster, or starts one on this machine. `stop` gives it up, and must live as long as the session.
  // UNSUPPORTED: there is no Python, or it lacks the engine, or the cluster cannot be reached in five minutes.
  // INTERRUPTED.
  static absl::StatusOr<std::unique_ptr<EngineSession>> Start(const EngineChoice& choice,
                                                              const std::atomic<bool>& stop);
  // How many tasks can run at the same time.
  int slots() const { return slots_; }

  // Runs the tasks and returns what each printed, as --format=json. A failed task fails the whole: no further ones
  // begin, those that run are ended. It waits as long as the engine has no place for tasks. The error has the reason of
  // one that failed; its message names some of them with their nodes and what they said. UNSUPPORTED: also a node has
  // no `cairn`, or another version. TRANSPORT_FAILED: a task was lost again and again, or the engine failed.
  // INTERRUPTED.
  absl::StatusOr<std::vector<nlohmann::json>> Run(const std::vector<EngineTask>& tasks, EngineProgress* progress);

 private:
  explicit EngineSession(const EngineChoice& choice) : engine_(choice.engine) {}
  absl::Status Send(char kind, const nlohmann::json& content);
  // TIMED_OUT: no answer has come before `deadline`.
  absl::StatusOr<nlohmann::json> Receive(absl::Time deadline);

  const std::string engine_;
  int slots_ = 0;
  std::unique_ptr<PythonProcess> driver_;  // ends all tasks when it goes
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_ENGINE_ENGINE_SESSION_H_
