#include "corpus/sft/packed_parquet.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"

namespace cairn::corpus {
namespace {

constexpr char kProgram[] =
#include "corpus/sft/packed_writer_text.inc"
    ;

constexpr size_t kMostPacks = 500;
constexpr size_t kMostTokens = size_t{1} << 24;
constexpr size_t kPieceBytes = 1 << 20;

template <typename T>
std::string_view BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<PackedParquet>> PackedParquet::Start(OutputFile& output, const std::atomic<bool>* stop) {
  PythonProcess::Options options;
  options.program = kProgram;
  options.takes_frames = true;
  options.path = output.path();
  options.name = absl::StrCat("the writer of ", output.path());
  options.task = "writes Parquet files";
  options.package = "pyarrow";
  options.advice = "If nobody ended it, look in the kernel's log whether memory ran out.";
  options.stop = stop;
  CAIRN_ASSIGN_OR_RETURN(auto process, PythonProcess::Start(std::move(options)));
  return std::unique_ptr<PackedParquet>(new PackedParquet(output, std::move(process)));
}

absl::Status PackedParquet::BeginPack() {
  if (first_tokens_.size() == kMostPacks || ids_.size() >= kMostTokens) CAIRN_RETURN_IF_ERROR(Flush());
  first_tokens_.push_back(static_cast<int32_t>(ids_.size()));
  first_samples_.push_back(static_cast<int32_t>(starts_.size()));
  return absl::OkStatus();
}

void PackedParquet::AddSample(const std::vector<uint32_t>& tokens) {
  starts_.push_back(static_cast<int32_t>(ids_.size()) - first_tokens_.back());
  for (size_t i = 0; i < tokens.size(); ++i) {
    ids_.push_back(static_cast<int32_t>(tokens[i] & ~kTrained));
    mask_.push_back(i + 1 < tokens.size() && (tokens[i + 1] & kTrained) != 0 ? 1 : 0);
  }
}

absl::Status PackedParquet::TakeBytes() {
  CAIRN_ASSIGN_OR_RETURN(const PythonProcess::Frame frame, process_->ReceiveFrame());
  if (frame.kind == 'E') return process_->ReceiveFailure(frame);
  if (frame.kind != 'D') return process_->NoFrame();
  std::string piece(std::min<size_t>(frame.length, kPieceBytes), '\0');
  for (size_t left = frame.length; left > 0; left -= piece.size()) {
    piece.resize(std::min(left, piece.size()));
    CAIRN_RETURN_IF_ERROR(process_->ReceiveAll(piece.data(), piece.size()));
    CAIRN_RETURN_IF_ERROR(output_.Append(piece));
  }
  return absl::OkStatus();
}

absl::Status PackedParquet::Flush() {
  const std::array<uint32_t, 3> counts = {static_cast<uint32_t>(first_tokens_.size()),
                                          static_cast<uint32_t>(ids_.size()), static_cast<uint32_t>(starts_.size())};
  first_tokens_.push_back(static_cast<int32_t>(ids_.size()));
  first_samples_.push_back(static_cast<int32_t>(starts_.size()));
  const std::array<std::string_view, 6> parts = {
      std::string_view(reinterpret_cast<const char*>(counts.data()), sizeof(counts)),
      BytesOf(first_tokens_),
      BytesOf(ids_),
      BytesOf(first_samples_),
      BytesOf(starts_),
      BytesOf(mask_)};
  size_t size = 0;
  for (const std::string_view part : parts) size += part.size();
  CAIRN_RETURN_IF_ERROR(process_->SendHeader('G', static_cast<uint32_t>(size)));
  for (const std::string_view part : parts) CAIRN_RETURN_IF_ERROR(process_->Send(part));
  first_tokens_.clear();
  first_samples_.clear();
  ids_.clear();
  starts_.clear();
  mask_.clear();
  return TakeBytes();
}

absl::Status PackedParquet::Finish() {
  if (!first_tokens_.empty()) CAIRN_RETURN_IF_ERROR(Flush());
  CAIRN_RETURN_IF_ERROR(process_->SendFrame('Z', ""));
  return TakeBytes();
}

}  // namespace cairn::corpus
