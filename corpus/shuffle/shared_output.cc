#include "corpus/shuffle/shared_output.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/output_place.h"
#include "corpus/shuffle/input_list.h"
#include "corpus/shuffle/shuffle_job.h"
#include "corpus/shuffle/shuffle_output.h"

namespace cairn::corpus {

absl::StatusOr<bool> SharedOutput::Fits(const ShuffleOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const OutputPlace place, FindShuffleOutput(options));
  return !place.stream && !place.object && !options.Splits() && options.compression == Compression::kNone;
}

absl::StatusOr<std::unique_ptr<SharedOutput>> SharedOutput::Create(const ShuffleOptions& options,
                                                                   const std::vector<LineMultiset>& buckets,
                                                                   const std::atomic<bool>& stop) {
  const SourceOptions source = SourceOptionsFor(options, stop);
  CAIRN_ASSIGN_OR_RETURN(const OutputPlace place, FindShuffleOutput(options));
  CAIRN_ASSIGN_OR_RETURN(std::vector<InputFile> inputs, ListInputs(options.inputs));
  CAIRN_ASSIGN_OR_RETURN(const std::string header,
                         ReadHeaders(inputs, options.header_lines, options.separator, source));
  std::unique_ptr<SharedOutput> output(new SharedOutput());
  output->report_.outputs = {place.path};
  output->report_.input_files = inputs.size();
  output->report_.buckets = static_cast<uint32_t>(buckets.size());
  output->offsets_ = {header.size()};
  for (const LineMultiset& lines : buckets) {
    output->report_.lines += lines;
    output->offsets_.push_back(output->offsets_.back() + lines.bytes + lines.lines);
  }
  CAIRN_ASSIGN_OR_RETURN(output->file_, CopiedFile::Create(place.path));
  output->written_.resize(buckets.size());
  CAIRN_RETURN_IF_ERROR(output->file_->Resize(output->offsets_.back()));
  CAIRN_RETURN_IF_ERROR(output->file_->AppendBytes(header));
  return output;
}

absl::StatusOr<ShuffleReport> SharedOutput::Commit() {
  for (size_t bucket = 0; bucket < written_.size(); ++bucket) {
    if (written_[bucket] || offsets_[bucket] == offsets_[bucket + 1]) continue;
    return MakeError(Reason::kStorageError, absl::StrCat("bucket ", bucket + 1, " was not written into ", path()),
                     {{"file", path()}});
  }
  const uint64_t bytes = offsets_.back();
  std::error_code error;
  const uint64_t found = std::filesystem::file_size(path(), error);
  if (error || found != bytes) {
    return MakeError(Reason::kStorageError,
                     absl::StrCat(path(), " has ", error ? 0 : found, " bytes instead of ", bytes), {{"file", path()}});
  }
  CAIRN_RETURN_IF_ERROR(file_->Commit());
  report_.output_bytes = bytes;
  return std::move(report_);
}

}  // namespace cairn::corpus
