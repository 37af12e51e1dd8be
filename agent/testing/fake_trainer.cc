#include "agent/testing/fake_trainer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "agent/sockets/descriptor_socket.h"
#include "agent/trainer_service/local_server.h"
#include "common/base/crc32c.h"
#include "common/base/random_id.h"
#include "common/file/unique_fd.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::testing {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(20);

absl::Status Check(const grpc::Status& status) { return CallError(status, ServerRole::kAgent, "under test"); }

}  // namespace

absl::StatusOr<std::unique_ptr<Mapping>> Mapping::Open(const v1::SlabReference& reference, bool writable) {
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd,
                         ReceiveDescriptor(reference.descriptor_socket(), reference.descriptor_id(), geteuid()));
  void* data = mmap(nullptr, reference.bytes(), writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return MakeError(Reason::kInternal, std::strerror(errno));
  return std::unique_ptr<Mapping>(new Mapping(static_cast<char*>(data), reference.bytes()));
}

Mapping::~Mapping() { munmap(data_, bytes_); }

FakeTrainer::FakeTrainer(const std::string& address, uint64_t incarnation)
    : incarnation_(incarnation != 0 ? incarnation : RandomId()),
      stub_(v1::LocalAgentService::NewStub(MakeChannel(address, kMaxLocalMessageBytes))) {}

absl::Status FakeTrainer::Attach(uint64_t previous_agent) {
  grpc::ClientContext context;
  PrepareCall(context, kTimeout);
  v1::AttachRequest request;
  request.set_trainer_incarnation(incarnation_);
  request.set_protocol(1);
  request.set_previous_agent(previous_agent);
  return Check(stub_->Attach(&context, request, &attached_));
}

absl::StatusOr<v1::PrepareResponse> FakeTrainer::Prepare(const RankLayout& layout) {
  v1::PrepareRequest request;
  request.set_trainer_incarnation(incarnation_);
  request.mutable_layout()->set_digest(layout.digest);
  request.mutable_max_wait()->set_seconds(5);
  while (true) {
    grpc::ClientContext context;
    PrepareCall(context, kTimeout);
    v1::PrepareResponse response;
    CAIRN_RETURN_IF_ERROR(Check(stub_->Prepare(&context, request, &response)));
    if (response.need_layout()) {
      request.mutable_layout()->set_layout(layout.bytes);
    } else if (!response.pending()) {
      return response;
    }
  }
}

absl::StatusOr<v1::BeginSaveResponse> FakeTrainer::BeginSave(const RankLayout& layout, int64_t step,
                                                             int timeout_seconds) {
  v1::BeginSaveRequest request;
  request.set_trainer_incarnation(incarnation_);
  request.set_step(step);
  request.mutable_layout()->set_digest(layout.digest);
  request.mutable_timeout()->set_seconds(timeout_seconds);
  request.mutable_max_wait()->set_seconds(5);
  while (true) {
    grpc::ClientContext context;
    PrepareCall(context, kTimeout);
    v1::BeginSaveResponse response;
    CAIRN_RETURN_IF_ERROR(Check(stub_->BeginSave(&context, request, &response)));
    if (response.need_layout()) {
      request.mutable_layout()->set_layout(layout.bytes);
    } else if (!response.pending()) {
      return response;
    }
  }
}

absl::Status FakeTrainer::Fill(const v1::BeginSaveResponse& begun, const std::vector<std::string>& contents) {
  if (begun.placements_size() > 0 && (slab_ == nullptr || slab_id_ != begun.slab().descriptor_id())) {
    slab_.reset();
    CAIRN_ASSIGN_OR_RETURN(slab_, Mapping::Open(begun.slab(), true));
    slab_id_ = begun.slab().descriptor_id();
  }
  for (const auto& placement : begun.placements()) {
    const std::string& content = contents.at(placement.item());
    std::memcpy(slab_->data() + placement.slab_offset(), content.data(), content.size());
  }
  return absl::OkStatus();
}

absl::Status FakeTrainer::Commit(const v1::BeginSaveResponse& begun, const std::vector<uint64_t>& object_bytes,
                                 const std::vector<uint32_t>& checks) {
  v1::CommitStagingRequest request;
  request.set_trainer_incarnation(incarnation_);
  request.set_save(begun.save());
  for (uint64_t bytes : object_bytes) request.add_object_sizes(bytes);
  for (uint32_t check : checks) request.add_check_checksums(check);
  grpc::ClientContext context;
  PrepareCall(context, kTimeout);
  v1::CommitStagingResponse response;
  return Check(stub_->CommitStaging(&context, request, &response));
}

absl::StatusOr<v1::Checkpoint> FakeTrainer::WaitSave(int64_t step, uint64_t save) {
  v1::WaitSaveRequest request;
  request.set_trainer_incarnation(incarnation_);
  request.set_step(step);
  request.set_save(save);
  request.mutable_max_wait()->set_seconds(5);
  while (true) {
    grpc::ClientContext context;
    PrepareCall(context, kTimeout);
    v1::WaitSaveResponse response;
    CAIRN_RETURN_IF_ERROR(Check(stub_->WaitSave(&context, request, &response)));
    if (!response.pending()) return response.checkpoint();
  }
}

absl::StatusOr<v1::BeginLoadResponse> FakeTrainer::BeginLoad(const RankLayout& layout, uint64_t number) {
  v1::BeginLoadRequest request;
  request.set_trainer_incarnation(incarnation_);
  request.set_number(number);
  request.mutable_layout()->set_digest(layout.digest);
  request.mutable_layout()->set_layout(layout.bytes);
  request.set_strict(true);
  request.set_reads_pieces(reads_pieces_);
  request.mutable_max_wait()->set_seconds(5);
  while (true) {
    grpc::ClientContext context;
    PrepareCall(context, kTimeout);
    v1::BeginLoadResponse response;
    CAIRN_RETURN_IF_ERROR(Check(stub_->BeginLoad(&context, request, &response)));
    if (!response.pending()) return response;
  }
}

void RunCopy(const v1::Copy& copy, const char* source, char* target) {
  std::vector<int64_t> index(static_cast<size_t>(copy.extents_size()), 0);
  for (int64_t extent : copy.extents()) {
    if (extent == 0) return;
  }
  while (true) {
    int64_t from = static_cast<int64_t>(copy.source_offset()), to = static_cast<int64_t>(copy.target_offset());
    for (size_t d = 0; d < index.size(); ++d) {
      from += index[d] * copy.source_strides(static_cast<int>(d));
      to += index[d] * copy.target_strides(static_cast<int>(d));
    }
    std::memcpy(target + to, source + from, copy.element_bytes());
    size_t d = index.size();
    while (d > 0 && ++index[d - 1] == copy.extents(static_cast<int>(d - 1))) index[--d] = 0;
    if (d == 0) return;
  }
}

absl::Status FakeTrainer::ReadPieces(const v1::LoadBatch& batch, std::vector<std::string>& targets,
                                     v1::ReadBatch& read) {
  std::vector<UniqueFd> files;
  for (const v1::PieceFile& file : batch.files()) {
    CAIRN_ASSIGN_OR_RETURN(files.emplace_back(),
                           ReceiveDescriptor(file.file().descriptor_socket(), file.file().descriptor_id(), geteuid()));
  }
  read.set_batch(batch.batch());
  pieces_ += static_cast<uint64_t>(batch.pieces_size());
  for (const v1::FilePiece& piece : batch.pieces()) {
    char* const target = targets.at(piece.target()).data() + piece.target_offset();
    if (pread(files.at(piece.file()).get(), target, piece.bytes(), static_cast<off_t>(piece.offset())) !=
        static_cast<ssize_t>(piece.bytes())) {
      read.set_refusal("a piece could not be read");
      read.clear_checksums();
      return absl::OkStatus();
    }
    read.add_checksums(Crc32c(target, piece.bytes()));
  }
  return absl::OkStatus();
}

absl::Status FakeTrainer::Receive(uint64_t number, std::vector<std::string>& targets) {
  v1::ReceiveLoadRequest request;
  request.set_trainer_incarnation(incarnation_);
  request.set_number(number);
  request.mutable_max_wait()->set_seconds(5);
  sources_.clear();
  while (true) {
    grpc::ClientContext context;
    PrepareCall(context, kTimeout);
    v1::ReceiveLoadResponse response;
    CAIRN_RETURN_IF_ERROR(Check(stub_->ReceiveLoad(&context, request, &response)));
    request.clear_released_batches();
    request.clear_read_batches();
    for (const v1::LoadBatch& batch : response.batches()) {
      if (batch.pieces_size() > 0) {
        CAIRN_RETURN_IF_ERROR(ReadPieces(batch, targets, *request.add_read_batches()));
        continue;
      }
      const auto opened = Mapping::Open(batch.buffer(), false);
      if (!opened.ok()) {  // its agent has ended the load: ours is about to hear why
        for (int i = 0; i < 3; ++i) {
          grpc::ClientContext again;
          PrepareCall(again, kTimeout);
          v1::ReceiveLoadResponse later;
          CAIRN_RETURN_IF_ERROR(Check(stub_->ReceiveLoad(&again, request, &later)));
        }
        return opened.status();
      }
      const auto& buffer = *opened;
      ++sources_[batch.buffer().descriptor_socket()];
      for (const v1::Copy& copy : batch.copies()) RunCopy(copy, buffer->data(), targets.at(copy.target()).data());
      request.add_released_batches(batch.batch());
    }
    if (response.complete() && response.batches_size() == 0) return absl::OkStatus();
  }
}

absl::StatusOr<v1::EndLoadResponse> FakeTrainer::EndLoad(uint64_t number) {
  v1::EndLoadRequest request;
  request.set_trainer_incarnation(incarnation_);
  request.set_number(number);
  request.mutable_max_wait()->set_seconds(5);
  while (true) {
    grpc::ClientContext context;
    PrepareCall(context, kTimeout);
    v1::EndLoadResponse response;
    CAIRN_RETURN_IF_ERROR(Check(stub_->EndLoad(&context, request, &response)));
    if (!response.pending()) return response;
  }
}

}  // namespace cairn::testing
