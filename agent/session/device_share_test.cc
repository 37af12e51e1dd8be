// Tests what a session does with GPU memory that its trainer shares, and with the slab that the agent copies to.
#include "agent/session/device_share.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/testing/session_fixture.h"
#include "common/base/crc32c.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr uint64_t kBlock = 2 << 20;
constexpr uint32_t kA = 0, kB = 1;  // 400 and 800 bytes
constexpr uint64_t kABytes = 400, kBBytes = 800;

class DeviceShareTest : public TrainersOfARank {
 protected:
  // Returns the only action of this kind that there is to be done; nothing if there is none.
  template <typename Kind>
  std::optional<Kind> Done() {
    std::optional<Kind> found;
    for (Action& action : session_.TakeActions()) {
      if (auto* kind = std::get_if<Kind>(&action); kind != nullptr) {
        EXPECT_FALSE(found.has_value());
        found = std::move(*kind);
      }
    }
    return found;
  }

  static v1::OfferDeviceMemoryRequest OfferRequest(uint64_t number, const std::vector<uint64_t>& bytes,
                                                   const std::vector<uint64_t>& dropped = {}) {
    v1::OfferDeviceMemoryRequest request;
    request.set_trainer_incarnation(kFirst);
    request.set_number(number);
    for (const uint64_t each : bytes) request.add_block_bytes(each);
    for (const uint64_t each : dropped) request.add_dropped_blocks(each);
    return request;
  }
  // Offers blocks, and lets the agent take them. Returns their ids.
  std::vector<uint64_t> Share(uint64_t number, const std::vector<uint64_t>& bytes) {
    const auto request = OfferRequest(number, bytes);
    EXPECT_TRUE(session_.Ask(request, now_)->pending());
    const auto awaited = Done<action::AwaitDeviceMemory>();
    EXPECT_TRUE(awaited.has_value());
    if (!awaited.has_value()) return {};
    session_.OnOfferOpened(awaited->offer, 4711);
    const auto response = session_.Ask(request, now_);
    EXPECT_EQ(response->descriptor_id(), 4711);
    session_.OnOfferTaken(awaited->offer, absl::OkStatus());
    return {response->blocks().begin(), response->blocks().end()};
  }

  struct Part {
    uint32_t item;
    uint64_t item_offset, bytes, block, offset;
  };
  static v1::CopyFromDeviceRequest CopyRequest(uint64_t number, uint64_t save, const std::vector<Part>& parts) {
    v1::CopyFromDeviceRequest request;
    request.set_trainer_incarnation(kFirst);
    request.set_number(number);
    request.set_save(save);
    for (const Part& part : parts) {
      v1::DeviceMemoryCopy& copy = *request.add_copies();
      copy.set_item(part.item);
      copy.set_item_offset(part.item_offset);
      copy.set_bytes(part.bytes);
      copy.set_block(part.block);
      copy.set_memory_offset(part.offset);
    }
    return request;
  }
  absl::StatusOr<v1::CopyFromDeviceResponse> Copy(uint64_t number, uint64_t save, const std::vector<Part>& parts) {
    return session_.Ask(CopyRequest(number, save, parts), now_);
  }
  // Begins a save of the step, and lets the agent begin to copy one item for it.
  std::pair<uint64_t, action::CopyFromDevice> BeginCopy(int64_t step, uint64_t number = 1) {
    const uint64_t save = Stage(kFirst, step).save();
    const std::vector<uint64_t> blocks = Share(number, {kBlock});
    EXPECT_TRUE(Copy(number, save, {{kA, 0, kABytes, blocks.at(0), 0}})->pending());
    auto copy = Done<action::CopyFromDevice>();
    EXPECT_TRUE(copy.has_value());
    return {save, copy.value_or(action::CopyFromDevice())};
  }
};

TEST_F(DeviceShareTest, Copy_PartsOfTwoBlocks_GoToTheItemsPlaces) {
  const auto begun = Stage(kFirst, 1);
  const std::vector<uint64_t> blocks = Share(1, {kBlock, kBlock});
  ASSERT_EQ(blocks.size(), 2u);
  const std::vector<Part> parts = {
      {kB, 0, 300, blocks[0], kBlock - 300}, {kB, 300, 500, blocks[1], 0}, {kA, 0, kABytes, blocks[1], 512}};
  EXPECT_TRUE(Copy(1, begun.save(), parts)->pending());
  const auto copy = Done<action::CopyFromDevice>();
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->slab, begun.slab().descriptor_id());
  EXPECT_EQ(copy->deadline, now_ + absl::Seconds(60)) << "that of the save";
  ASSERT_EQ(copy->parts->size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const DeviceMemoryPart& part = (*copy->parts)[i];
    EXPECT_EQ(part.slab_offset, begun.placements(static_cast<int>(parts[i].item)).slab_offset() + parts[i].item_offset);
    EXPECT_EQ(part.offset, parts[i].offset);
    EXPECT_EQ(part.bytes, parts[i].bytes);
  }
  EXPECT_TRUE(Copy(1, begun.save(), {})->pending()) << "a call that is repeated needs no copies";
  EXPECT_FALSE(Done<action::CopyFromDevice>().has_value());
  EXPECT_TRUE(HasReason(Commit(kFirst, begun.save()), Reason::kBadRequest)) << "the copies have not ended";
  session_.OnDeviceCopied(copy->copy, DeviceCopied{.checksums = {1, 2, 3}});
  const auto ended = Copy(1, begun.save(), {});
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_FALSE(ended->pending());
  EXPECT_EQ(ended->checked_items(), 2u);
  EXPECT_TRUE(Commit(kFirst, begun.save()).ok());
}

TEST_F(DeviceShareTest, Write_OfWhatTheDeviceDidNotHold_IsTorn) {
  for (const bool torn : {false, true}) {
    const int64_t step = torn ? 2 : 1;
    const uint64_t number = static_cast<uint64_t>(step);
    const uint64_t save = Stage(kFirst, step).save();
    const std::vector<uint64_t> blocks = Share(number, {kBlock});
    ASSERT_TRUE(Copy(number, save, {{kA, 0, 100, blocks[0], 0}, {kA, 100, 300, blocks[0], 100}}).ok());
    const auto copy = Done<action::CopyFromDevice>();
    ASSERT_TRUE(copy.has_value());
    const std::string bytes(kABytes, 'x');
    session_.OnDeviceCopied(copy->copy,
                            DeviceCopied{.checksums = {Crc32c(bytes.data(), 100), Crc32c(bytes.data(), 300)}});
    ASSERT_TRUE(Commit(kFirst, save).ok());
    session_.BuildRequest(std::nullopt);
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    v1::SaveOrder& order = *response.add_saves();
    order.set_step(step);
    order.set_phase(v1::Phase::WRITING);
    order.set_plan_digest("p");
    order.set_attempt(1);
    ASSERT_TRUE(session_.OnOrders(response).ok());
    const auto write = Done<action::StartWrite>();
    ASSERT_TRUE(write.has_value());
    v1::WriteResult result;
    v1::FileResult& file = *result.add_files();
    for (const uint32_t item : write->target->file[0].item) {
      file.add_item_checksums(item == kA ? Crc32c(bytes.data(), kABytes) + (torn ? 1 : 0) : 99);
    }
    session_.saves().OnWriteEnded(save, result);
    const v1::AgentState state = session_.BuildRequest(std::nullopt).state();
    ASSERT_EQ(state.saves_size(), 1);
    EXPECT_EQ(state.saves(0).phase(), torn ? v1::Phase::FAILED : v1::Phase::WRITTEN);
    if (torn) {
      const absl::Status error = StatusFromProto(state.saves(0).error());
      EXPECT_TRUE(HasReason(error, Reason::kTornSnapshot)) << error;
      EXPECT_NE(error.message().find("a:"), std::string::npos) << error;
    }
    Order(step, torn ? v1::Phase::ABORTED : v1::Phase::COMMITTED);
  }
}

TEST_F(DeviceShareTest, Slab_ThatTheAgentStillCopiesTo_IsNobodysUntilThatHasEnded) {
  const auto [save, copy] = BeginCopy(1);
  ASSERT_TRUE(Cancel(kFirst, save).ok());
  const auto stop = Done<action::StopDeviceCopy>();
  ASSERT_TRUE(stop.has_value());
  EXPECT_EQ(stop->copy, copy.copy);
  Abort(1);
  EXPECT_EQ(SlabOf(kFirst, 2), copy.slab + 1) << "the first one may still be written";
  EXPECT_FALSE(Copy(2, save, {}).ok()) << "of a save that is over";
  session_.OnDeviceCopied(copy.copy, MakeError(Reason::kDeviceError, "stopped"));
  Abort(2);
  EXPECT_EQ(SlabOf(kFirst, 3), copy.slab + 1);
}

TEST_F(DeviceShareTest, Slab_WhoseCopiesAreKnownToHaveEnded_IsUsedAgain) {
  const auto [save, copy] = BeginCopy(1);
  ASSERT_TRUE(Cancel(kFirst, save).ok());
  session_.OnDeviceCopied(copy.copy, MakeError(Reason::kDeviceError, "stopped"));
  Abort(1);
  EXPECT_EQ(SlabOf(kFirst, 2), copy.slab);
}

TEST_F(DeviceShareTest, Copy_WhoseSaveIsLate_IsStoppedOnce) {
  const auto [save, copy] = BeginCopy(1);
  now_ += absl::Seconds(61);
  session_.OnTick(now_);
  EXPECT_TRUE(Done<action::StopDeviceCopy>().has_value());
  session_.OnTick(now_);
  EXPECT_FALSE(Done<action::StopDeviceCopy>().has_value());
  EXPECT_TRUE(HasReason(Copy(1, save, {}).status(), Reason::kRankLate));
}

TEST_F(DeviceShareTest, Copy_WhileAnEarlierOneIsStopped_IsRefusedSoThatTheTrainerCopies) {
  const auto [save, copy] = BeginCopy(1);
  ASSERT_TRUE(Cancel(kFirst, save).ok());
  Abort(1);
  const auto begun = Stage(kFirst, 2);
  const auto answer = Copy(2, begun.save(), {{kA, 0, kABytes, 99, 0}});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_FALSE(answer->pending());
  EXPECT_EQ(answer->refused(), "the copies of an earlier save have not ended yet");
  EXPECT_TRUE(Commit(kFirst, begun.save()).ok());
}

TEST_F(DeviceShareTest, Copy_ThatFails_TellsWhyAndForgetsTheBlocks) {
  const auto [save, copy] = BeginCopy(1);
  session_.OnDeviceCopied(copy.copy, MakeError(Reason::kDeviceError, "cuMemcpyDtoHAsync: CUDA_ERROR_UNKNOWN"));
  for (int again = 0; again < 2; ++again) {
    const absl::Status error = Copy(1, save, {}).status();
    EXPECT_TRUE(HasReason(error, Reason::kDeviceError)) << error;
    EXPECT_NE(error.message().find("rank 0"), std::string::npos) << error;
  }
  const auto lost = Copy(2, save, {{kA, 0, kABytes, (*copy.parts)[0].block, 0}});
  ASSERT_TRUE(lost.ok()) << lost.status();
  EXPECT_TRUE(lost->blocks_lost());
  EXPECT_TRUE(Copy(3, save, {{kA, 0, kABytes, Share(2, {kBlock}).at(0), 0}})->pending()) << "the next one works";
}

TEST_F(DeviceShareTest, Copy_OfBlocksThatWentWithTheirProcess_SaysSo) {
  const auto [save, copy] = BeginCopy(1);
  session_.OnDeviceCopied(copy.copy, DeviceCopied{.kind = DeviceCopied::Kind::kLost});
  const auto answer = Copy(1, save, {});
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->blocks_lost());
  EXPECT_FALSE(answer->pending());
  EXPECT_TRUE(Copy(2, save, {{kA, 0, kABytes, (*copy.parts)[0].block, 0}})->blocks_lost());
}

TEST_F(DeviceShareTest, Copy_OfWhatIsNotTakenYet_Waits) {
  const uint64_t save = Stage(kFirst, 1).save();
  const auto request = OfferRequest(1, {kBlock});
  ASSERT_TRUE(session_.Ask(request, now_)->pending());
  const auto awaited = Done<action::AwaitDeviceMemory>();
  session_.OnOfferOpened(awaited->offer, 4711);
  const uint64_t block = session_.Ask(request, now_)->blocks(0);
  const auto copy = CopyRequest(1, save, {{kA, 0, kABytes, block, 0}});
  EXPECT_TRUE(session_.Ask(copy, now_)->pending());
  EXPECT_FALSE(Done<action::CopyFromDevice>().has_value());
  EXPECT_TRUE(session_.Ask(OfferRequest(2, {kBlock}), now_)->pending()) << "one after the other";
  session_.OnOfferTaken(awaited->offer, absl::OkStatus());
  EXPECT_TRUE(session_.Ask(copy, now_)->pending());
  EXPECT_TRUE(Done<action::CopyFromDevice>().has_value());
}

TEST_F(DeviceShareTest, Offer_OfFabricBlocks_TellsTheShellWhichTheyAre) {
  Stage(kFirst, 1);
  auto request = OfferRequest(1, {kBlock, kBlock, kBlock});
  request.add_fabric_blocks(3);
  EXPECT_FALSE(session_.Ask(request, now_).ok()) << "there is no fourth";
  request.set_fabric_blocks(0, 1);
  ASSERT_TRUE(session_.Ask(request, now_)->pending());
  const auto awaited = Done<action::AwaitDeviceMemory>();
  ASSERT_EQ(awaited->blocks.size(), 3u);
  EXPECT_TRUE(!awaited->blocks[0].fabric && awaited->blocks[1].fabric && !awaited->blocks[2].fabric);
}

TEST_F(DeviceShareTest, Offer_ThatTheDriverRefuses_IsToldOnceAndEverythingIsGivenBack) {
  const uint64_t save = Stage(kFirst, 1).save();
  Share(1, {kBlock});
  ASSERT_TRUE(session_.Ask(OfferRequest(2, {kBlock}), now_)->pending());
  const auto awaited = Done<action::AwaitDeviceMemory>();
  session_.OnOfferTaken(awaited->offer, MakeError(Reason::kDeviceError, "cuMemMap: CUDA_ERROR_UNKNOWN"));
  EXPECT_TRUE(Done<action::EndDeviceMemory>().has_value());
  const auto copy = CopyRequest(1, save, {{kA, 0, kABytes, awaited->blocks[0].id, 0}});
  EXPECT_EQ(session_.Ask(copy, now_)->refused(), "cuMemMap: CUDA_ERROR_UNKNOWN");
  EXPECT_TRUE(session_.Ask(copy, now_)->blocks_lost());
  EXPECT_TRUE(session_.Ask(OfferRequest(3, {kBlock}), now_)->pending()) << "it may be tried again";
}

TEST_F(DeviceShareTest, Offer_WithBlocksThatAreDropped_GivesThemBack) {
  const uint64_t save = Stage(kFirst, 1).save();
  const std::vector<uint64_t> blocks = Share(1, {kBlock, kBlock});
  const auto response = session_.Ask(OfferRequest(2, {}, {blocks[0], 12345}), now_);
  EXPECT_FALSE(response->pending());
  const auto dropped = Done<action::DropDeviceMemory>();
  ASSERT_TRUE(dropped.has_value());
  EXPECT_EQ(dropped->blocks, std::vector<uint64_t>{blocks[0]});
  EXPECT_TRUE(Copy(1, save, {{kA, 0, kABytes, blocks[0], 0}})->blocks_lost());
  EXPECT_TRUE(Copy(2, save, {{kA, 0, kABytes, blocks[1], 0}})->pending());
}

TEST_F(DeviceShareTest, Trainer_ThatIsGone_LeavesNothing) {
  for (const auto how : {TrainerEnd::kEnded, TrainerEnd::kDetached}) {
    const bool killed = how == TrainerEnd::kEnded;
    const auto [save, copy] = BeginCopy(killed ? 1 : 2, killed ? 1 : 2);
    session_.OnTrainerGone(kFirst, how);
    EXPECT_TRUE(Done<action::EndDeviceMemory>().has_value());
    Abort(killed ? 1 : 2);
    if (killed) {
      EXPECT_EQ(SlabOf(kSecond, 5), copy.slab + 1) << "the agent may still copy for the one that was killed";
    }
    session_.OnDeviceCopied(copy.copy, MakeError(Reason::kDeviceError, "ended"));
    if (killed) Abort(5);
  }
  session_.Attach(kFirst);
  session_.OnTrainerGone(kFirst, TrainerEnd::kEnded);
  EXPECT_FALSE(Done<action::EndDeviceMemory>().has_value()) << "it has shared nothing";
}

TEST_F(DeviceShareTest, Offer_ThatEndsTheSharing_GivesEverythingBack) {
  const uint64_t save = Stage(kFirst, 1).save();
  const std::vector<uint64_t> blocks = Share(1, {kBlock});
  v1::OfferDeviceMemoryRequest request;
  request.set_trainer_incarnation(kFirst);
  request.set_end(true);
  EXPECT_FALSE(session_.Ask(request, now_)->pending());
  EXPECT_TRUE(Done<action::EndDeviceMemory>().has_value());
  EXPECT_TRUE(Copy(1, save, {{kA, 0, kABytes, blocks[0], 0}})->blocks_lost());
}

TEST_F(DeviceShareTest, Copy_OutsideOfItsBounds_IsRefused) {
  const uint64_t save = Stage(kFirst, 1).save();
  const uint64_t block = Share(1, {kBlock}).at(0);
  constexpr uint64_t kMost = UINT64_MAX;
  uint64_t number = 0;
  const std::vector<std::vector<Part>> wrong = {
      {},
      {{2, 0, 4, block, 0}},  // no such item
      {{kMost & 0xffffffff, 0, 4, block, 0}},
      {{kA, 0, kABytes + 1, block, 0}},  // beyond the item
      {{kA, 0, kMost, block, 0}},
      {{kA, 4, kABytes - 4, block, 0}},  // not from its begin
      {{kA, 0, 4, block, 0}},            // not to its end
      {{kA, 0, 4, block, 0}, {kB, 0, kBBytes, block, 0}},
      {{kA, 0, 4, block, 0}, {kA, 8, kABytes - 8, block, 0}},  // with a gap
      {{kA, 0, kABytes, block, kBlock - 1}},                   // beyond the block
      {{kA, 0, kABytes, block, kMost}},
      {{kA, 0, 0, block, 0}},
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    EXPECT_TRUE(HasReason(Copy(++number, save, wrong[i]).status(), Reason::kBadRequest)) << i;
  }
  EXPECT_TRUE(HasReason(Copy(0, save, {{kA, 0, kABytes, block, 0}}).status(), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(Copy(++number, save + 7, {{kA, 0, kABytes, block, 0}}).status(), Reason::kBadRequest));
  EXPECT_FALSE(Done<action::CopyFromDevice>().has_value());
}

TEST_F(DeviceShareTest, Copy_FromIpcMemory_IsOpenedForThisCopyAlone) {
  const uint64_t save = Stage(kFirst, 1).save();
  v1::CopyFromDeviceRequest request;
  request.set_trainer_incarnation(kFirst);
  request.set_number(1);
  request.set_save(save);
  v1::DeviceMemoryCopy& copy = *request.add_copies();
  copy.set_item(kA);
  copy.set_bytes(kABytes);
  copy.set_ipc(0);
  EXPECT_TRUE(HasReason(session_.Ask(request, now_).status(), Reason::kBadRequest)) << "not given";
  v1::IpcMemory& memory = *request.add_ipc_handles();
  memory.set_handle(std::string(64, 'h'));
  memory.set_bytes(kABytes);
  EXPECT_TRUE(HasReason(session_.Ask(request, now_).status(), Reason::kBadRequest)) << "no device";
  memory.set_device_uuid(std::string(16, 'u'));
  ASSERT_TRUE(session_.Ask(request, now_)->pending());
  const auto done = Done<action::CopyFromDevice>();
  ASSERT_TRUE(done.has_value());
  ASSERT_EQ(done->ipc.size(), 1u);
  EXPECT_EQ(done->ipc[0].ipc_handle, std::string(64, 'h'));
  EXPECT_EQ((*done->parts)[0].block, done->ipc[0].id);
}

TEST_F(DeviceShareTest, Offer_OutsideOfItsBounds_IsRefused) {
  Stage(kFirst, 1);
  EXPECT_FALSE(session_.Ask(OfferRequest(1, {0}), now_).ok());
  EXPECT_FALSE(session_.Ask(OfferRequest(1, std::vector<uint64_t>(65, kBlock)), now_).ok());
  auto other = OfferRequest(1, {kBlock});
  other.set_trainer_incarnation(kSecond);
  EXPECT_FALSE(session_.Ask(other, now_).ok()) << "not attached";
  EXPECT_FALSE(Done<action::AwaitDeviceMemory>().has_value());
}

}  // namespace
}  // namespace cairn
