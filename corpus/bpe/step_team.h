// Lets a few threads take many short steps together. Merging takes tens of thousands of steps, of microseconds each.
#ifndef CAIRN_CORPUS_BPE_STEP_TEAM_H_
#define CAIRN_CORPUS_BPE_STEP_TEAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace cairn::corpus {

// Does work that has a fixed number of parts. Threads claim parts and are not assigned any. So a helper that sleeps, or
// that the system has taken off its processor, costs nothing: the caller does its part. Only one thread may use it.
class StepTeam {
 public:
  // Has the caller and parts - 1 helpers.
  explicit StepTeam(uint32_t parts);
  ~StepTeam();
  StepTeam(const StepTeam&) = delete;
  StepTeam& operator=(const StepTeam&) = delete;

  // Calls work(part) for each part, at the same time, and returns when all are done. The parts see what was written
  // before, and afterwards the caller sees what they wrote.
  void Run(absl::FunctionRef<void(uint32_t)> work);

 private:
  // A claim has the number of the step in its upper half, and the next part to claim in its lower half.
  static uint64_t First(uint64_t claim) { return ((claim >> 32) + 1) << 32; }
  static uint32_t PartOf(uint64_t claim) { return static_cast<uint32_t>(claim); }

  void Help();
  // Does parts of the current step until none is left. Returns whether it did any.
  bool WorkOn();

  const uint32_t parts_;
  const absl::FunctionRef<void(uint32_t)>* work_ = nullptr;
  std::atomic<bool> ended_ = false;
  // These stand on cache lines of their own, because helpers that look for work must not disturb those that count what
  // is done. They are kept apart, not aligned: GCC's address sanitizer does not align locals to 64 bytes.
  static constexpr size_t kLine = 64;
  [[maybe_unused]] char apart_from_work_[kLine] = {};
  std::atomic<uint64_t> claim_;
  [[maybe_unused]] char apart_from_claim_[kLine] = {};
  std::atomic<uint32_t> done_ = 0;
  [[maybe_unused]] char apart_from_done_[kLine] = {};
  std::vector<std::thread> helpers_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_STEP_TEAM_H_
