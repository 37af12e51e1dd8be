// The agent's side of the control page, through which asking for a save costs the training loop nothing. Its layout and
// rules stand above AttachRequest in proto/cairn/v1/local_agent_service.proto.
#ifndef CAIRN_AGENT_STAGING_CONTROL_PAGE_H_
#define CAIRN_AGENT_STAGING_CONTROL_PAGE_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "agent/staging/shared_memory.h"

namespace cairn {

inline constexpr uint64_t kControlPageBytes = 4096;
inline constexpr uint64_t kControlPageMagic = 0x314e524941430001;

// Thread-safe against the trainer; one thread of the agent at a time.
class ControlPage {
 public:
  static absl::StatusOr<std::unique_ptr<ControlPage>> Create();

  // The last step that the trainer reported.
  std::optional<int64_t> CurrentStep() const;
  // False, and the page is clear, if the trainer has reported this step or a later one.
  bool Arm(int64_t step);
  // save_requested() may answer the step from now on. False, and the page is clear, if the trainer has given up waiting
  // for it.
  bool Agree(int64_t step);
  void Disarm();
  // Another trainer has taken the place of the one that has this page.
  void Replaced();

  const std::shared_ptr<SharedMemory>& memory() const { return memory_; }

 private:
  explicit ControlPage(std::shared_ptr<SharedMemory> memory);
  uint64_t& Word(size_t offset) const;

  const std::shared_ptr<SharedMemory> memory_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_STAGING_CONTROL_PAGE_H_
