#include "agent/execution/device_executor.h"

#include <utility>
#include <vector>

#include "common/status/reason.h"

namespace cairn {
namespace {

DeviceKeeperOptions OptionsOf(const ExecutorContext& context) {
  DeviceKeeperOptions options;
  options.worker = context.options.gpu_worker;
  options.on_taken = [&host = context.host](uint64_t offer, const absl::Status& status) {
    host.Do([&](Session& session, absl::Time) { session.OnOfferTaken(offer, status); });
  };
  options.on_copied = [&host = context.host](uint64_t copy, absl::StatusOr<DeviceCopied> copied) {
    host.Do([&](Session& session, absl::Time) { session.OnDeviceCopied(copy, std::move(copied)); });
  };
  return options;
}

}  // namespace

DeviceExecutor::DeviceExecutor(ExecutorContext context)
    : context_(context), keeper_(std::make_shared<DeviceKeeper>(OptionsOf(context))) {}

void DeviceExecutor::Await(const action::AwaitDeviceMemory& order) {
  const uint64_t offer = order.offer;
  context_.transfer.descriptors.StopAwaiting(awaited_);
  awaited_ = context_.transfer.descriptors.Await(
      order.blocks.size(), [keeper = keeper_, offer, blocks = order.blocks](std::vector<UniqueFd> descriptors) {
        keeper->Take(offer, blocks, std::move(descriptors));
      });
  context_.host.Do([&](Session& session, absl::Time) { session.OnOfferOpened(offer, awaited_); });
}

void DeviceExecutor::End() {
  context_.transfer.descriptors.StopAwaiting(awaited_);
  keeper_->End();
}

void DeviceExecutor::Copy(const action::CopyFromDevice& order, std::shared_ptr<SharedMemory> slab) {
  if (slab == nullptr) {
    context_.host.Do([&](Session& session, absl::Time) {
      session.OnDeviceCopied(order.copy,
                             MakeError(Reason::kDeviceError, "the staging buffer was replaced before the copies"));
    });
    return;
  }
  keeper_->Copy({.copy = order.copy,
                 .slab_id = order.slab,
                 .slab = std::move(slab),
                 .parts = order.parts,
                 .ipc = order.ipc,
                 .deadline = order.deadline});
}

void DeviceExecutor::Stop() {
  context_.transfer.descriptors.StopAwaiting(awaited_);
  keeper_->Stop();
}

}  // namespace cairn
