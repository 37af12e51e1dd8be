// Says what one rank of a fake job holds, and writes it. Every rank holds its share of the rows of "w", the whole of
// "b", and the object "meta".
#ifndef CAIRN_TESTS_TESTING_FAKE_STATE_H_
#define CAIRN_TESTS_TESTING_FAKE_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "common/format/stored_item.h"

namespace cairn::testing {

struct FakeAgentOptions {
  std::string coordinator;
  std::string root;
  std::string job = "demo";
  int rank = 0;
  int world_size = 3;
  std::string token;  // if it is empty, the root's token is used, if there is one
  // Holds a "b" with other bytes than the other ranks'.
  bool diverged = false;
  // Declares no "b".
  bool without_b = false;
  // Gives no checksum of "meta", or none of "b" although it was ordered to.
  bool silent_on_objects = false;
  bool silent_on_tensors = false;
};

class FakeState {
 public:
  explicit FakeState(const FakeAgentOptions& options);

  // Returns the serialized v1::Layout of this rank.
  const std::string& layout() const { return layout_; }
  const std::string& layout_digest() const { return layout_digest_; }

  // Writes this rank's bins by the serialized v1::WritePlan, below the attempt that the order names, and notes in
  // `save` what a real agent would tell of them. ROOT_MISMATCH if the attempt is another coordinator's, INTERNAL if the
  // plan is not one of this state, STORAGE_ERROR.
  absl::Status Write(v1::SaveState& save, const v1::SaveOrder& order, const std::string& plan) const;

 private:
  struct Item {
    StoredItem stored;
    std::string bytes;  // without the slot's padding
  };

  std::string BytesOf(uint32_t item) const;

  FakeAgentOptions options_;
  std::vector<Item> items_;
  std::string layout_;
  std::string layout_digest_;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_TESTING_FAKE_STATE_H_
