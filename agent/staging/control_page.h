// The agent's side of the control page: shared memory by which the training loop asks at no cost whether a save is
// requested. proto/cairn/v1/local_agent_service.proto describes its layout and rules, above AttachRequest.
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

// The trainer may use the page at the same time. On the agent's side, one thread at a time, but for StagedBytes.
class ControlPage {
 public:
  static absl::StatusOr<std::unique_ptr<ControlPage>> Create();

  // Returns the last step that the trainer reported; nothing if it has reported none.
  std::optional<int64_t> CurrentStep() const;
  // Orders a save at `step`, which the trainer must not pass without waiting. Returns false, and clears the page, if
  // the trainer has already reported this step or a later one.
  bool Arm(int64_t step);
  // Lets save_requested() return the step from now on. Returns false, and clears the page, if it waits no more.
  bool Agree(int64_t step);
  void Disarm();
  // Returns the offset in the slab below which the trainer has copied all that it was told to copy by this number
  // (BeginSaveResponse.staging); 0 if it copies something else. Nobody has checked that it lies in the slab.
  // Thread-safe.
  uint64_t StagedBytes(uint64_t staging) const;
  // Tells the trainer of this page that another trainer has replaced it.
  void Replaced();

  const std::shared_ptr<SharedMemory>& memory() const { return memory_; }

 private:
  explicit ControlPage(std::shared_ptr<SharedMemory> memory);
  uint64_t& Word(size_t offset) const;

  const std::shared_ptr<SharedMemory> memory_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_STAGING_CONTROL_PAGE_H_
