// A trainer in C++: calls an agent over its Unix socket and maps its memory.
#ifndef CAIRN_AGENT_TESTING_FAKE_TRAINER_H_
#define CAIRN_AGENT_TESTING_FAKE_TRAINER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/session/rank_layout.h"
#include "cairn/v1/local_agent_service.grpc.pb.h"

namespace cairn::testing {

// Maps an agent's memory.
class Mapping {
 public:
  static absl::StatusOr<std::unique_ptr<Mapping>> Open(const v1::SlabReference& reference, bool writable);
  ~Mapping();
  char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Mapping(char* data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  char* const data_;
  const uint64_t bytes_;
};

// One thread uses it at a time.
class FakeTrainer {
 public:
  explicit FakeTrainer(const std::string& address, uint64_t incarnation = 0);

  absl::Status Attach(uint64_t previous_agent = 0);
  // Calls until it is not pending any more.
  absl::StatusOr<v1::PrepareResponse> Prepare(const RankLayout& layout);
  absl::StatusOr<v1::BeginSaveResponse> BeginSave(const RankLayout& layout, int64_t step, int timeout_seconds = 10);
  // Copies contents[item] to where the placements say.
  absl::Status Fill(const v1::BeginSaveResponse& begun, const std::vector<std::string>& contents);
  absl::Status Commit(const v1::BeginSaveResponse& begun, const std::vector<uint64_t>& object_bytes,
                      const std::vector<uint32_t>& checks = {});
  absl::StatusOr<v1::Checkpoint> WaitSave(int64_t step, uint64_t save = 0);

  absl::StatusOr<v1::BeginLoadResponse> BeginLoad(const RankLayout& layout, uint64_t number);
  // Receives and copies until the load is complete. Targets: shards of the layout, then the objects of the answer.
  absl::Status Receive(uint64_t number, std::vector<std::string>& targets);
  absl::StatusOr<v1::EndLoadResponse> EndLoad(uint64_t number);

  v1::LocalAgentService::Stub& stub() { return *stub_; }
  const v1::AttachResponse& attached() const { return attached_; }
  uint64_t incarnation() const { return incarnation_; }
  // Returns how many different buffers the last Receive mapped, by descriptor socket.
  const std::map<std::string, int>& sources() const { return sources_; }
  // Whether later loads may give it pieces of files, and how many it has read.
  void ReadsPieces(bool reads) { reads_pieces_ = reads; }
  uint64_t pieces() const { return pieces_; }

 private:
  absl::Status ReadPieces(const v1::LoadBatch& batch, std::vector<std::string>& targets, v1::ReadBatch& read);

  const uint64_t incarnation_;
  const std::unique_ptr<v1::LocalAgentService::Stub> stub_;
  v1::AttachResponse attached_;
  std::unique_ptr<Mapping> slab_;
  uint64_t slab_id_ = 0;
  std::map<std::string, int> sources_;
  bool reads_pieces_ = false;
  uint64_t pieces_ = 0;
};

// A copy as the trainer does it; for checks elsewhere too.
void RunCopy(const v1::Copy& copy, const char* source, char* target);

}  // namespace cairn::testing

#endif  // CAIRN_AGENT_TESTING_FAKE_TRAINER_H_
