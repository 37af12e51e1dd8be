// Carries out what the session decides about the GPU memory of its trainer.
#ifndef CAIRN_AGENT_EXECUTION_DEVICE_EXECUTOR_H_
#define CAIRN_AGENT_EXECUTION_DEVICE_EXECUTOR_H_

#include <cstdint>
#include <memory>

#include "agent/execution/device_keeper.h"
#include "agent/execution/executor_context.h"
#include "agent/session/action.h"
#include "agent/staging/shared_memory.h"

namespace cairn {

// The calls are made by the one thread that executes actions, but for Stop. It tells the session what becomes of them.
class DeviceExecutor {
 public:
  explicit DeviceExecutor(ExecutorContext context);

  void Await(const action::AwaitDeviceMemory& order);
  void Drop(const action::DropDeviceMemory& order) { keeper_->Drop(order.blocks); }
  void End();
  // `slab` is the one that the order names; null if it is not there any more.
  void Copy(const action::CopyFromDevice& order, std::shared_ptr<SharedMemory> slab);
  void StopCopy(uint64_t copy) { keeper_->StopCopy(copy); }

  // Lets go of the slab, which is to be replaced.
  void LetGoOfSlab() { keeper_->LetGoOfSlab(); }

  // Gives everything back, waits, and begins nothing any more. Idempotent.
  void Stop();

 private:
  const ExecutorContext context_;
  uint64_t awaited_ = 0;  // the id of the descriptors that are awaited, or of the last ones that were
  const std::shared_ptr<DeviceKeeper> keeper_;  // the socket's thread may be about to give it something
};

}  // namespace cairn

#endif  // CAIRN_AGENT_EXECUTION_DEVICE_EXECUTOR_H_
