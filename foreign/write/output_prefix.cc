#include "foreign/write/output_prefix.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/source/foreign_file.h"

namespace cairn {
namespace {

// No export lasts so long, so an older upload was left by a process that was killed.
constexpr absl::Duration kUploadOfExport = absl::Hours(24);
// An upload has at most 10,000 parts.
constexpr uint64_t kMostPieces = 9990;

// The file belongs to the output, which completes or removes it.
class FileOfPrefix : public OutputFile {
 public:
  explicit FileOfPrefix(FileWriter& writer) : writer_(writer) {}

  absl::Status Write(uint64_t offset, std::string_view bytes) override {
    return writer_.Write(offset, bytes.data(), RoundUpToIo(bytes.size()));
  }
  absl::Status Finish(uint32_t) override { return absl::OkStatus(); }

 private:
  FileWriter& writer_;
};

}  // namespace

OutputPrefix::~OutputPrefix() {
  if (done_) return;
  // What cannot be removed is told nowhere: the error that ended the export is told already.
  for (const std::string& path : added_) storage_->RemoveAll(path).IgnoreError();
  for (const File& file : files_) {
    if (file.writer != nullptr) file.writer->Remove().IgnoreError();
  }
}

std::string OutputPrefix::PathOf(const std::string& name) const {
  return directory_.empty() ? name : absl::StrCat(directory_, "/", name);
}

// Below a root, the exported files would look like a job.
absl::Status OutputPrefix::CheckOutsideRoots() const {
  for (std::string above = directory_;;
       above = above.substr(0, above.rfind('/') == above.npos ? 0 : above.rfind('/'))) {
    const std::string root = above.empty() ? storage_->root() : storage_->FullPath(above);
    if (storage_->Exists(above.empty() ? ".cairn" : absl::StrCat(above, "/.cairn"))) {
      return MakeError(
          Reason::kBadRequest,
          absl::StrCat("--to ", storage_->FullPath(directory_), " is below ", root, ", a root of checkpoints"),
          {{"directory", storage_->FullPath(directory_)}, {"root", root}, {"next", "Choose a prefix outside of it."}});
    }
    if (above.empty()) return absl::OkStatus();
  }
}

absl::Status OutputPrefix::Open(const std::function<bool(std::string_view name)>& is_output) {
  CAIRN_RETURN_IF_ERROR(CheckOutsideRoots());
  CAIRN_RETURN_IF_ERROR(CheckFree([&](std::string_view name) { return IsOfACheckpoint(name) || is_output(name); }));
  if (!directory_.empty()) CAIRN_RETURN_IF_ERROR(storage_->MakeDirectories(directory_));
  storage_->RemoveUnfinished({directory_}, Clock::Real().WallNow() - kUploadOfExport).IgnoreError();
  return absl::OkStatus();
}

absl::Status OutputPrefix::CheckFree(const std::function<bool(std::string_view name)>& is_in_the_way) {
  const auto entries = storage_->List(directory_);
  if (HasReason(entries.status(), Reason::kFileMissing)) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(entries.status());
  for (const Storage::Entry& entry : *entries) {
    if (entry.unfinished || !is_in_the_way(entry.name)) continue;
    const std::string path = storage_->FullPath(PathOf(entry.name));
    return MakeError(Reason::kOutputExists,
                     absl::StrCat(path, " is there already; export to a prefix without a checkpoint"),
                     {{"file", path},
                      {"next",
                       "Give another --to. If an export was killed here, its last file is missing (the index, or "
                       "the metadata): remove the files that it has left, and export again."}});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<OutputFile>> OutputPrefix::Begin(const std::string& name, uint64_t bytes) {
  const std::string path = storage_->FullPath(PathOf(name));
  if (bytes > kMostPieces * kOutputPieceBytes) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat(path, " would have ", bytes, " bytes; an export writes files of at most ",
                                  kMostPieces * kOutputPieceBytes, " bytes into an object store"),
                     {{"file", path}, {"next", "Give a smaller --max-shard-size, or export to a directory."}});
  }
  CAIRN_ASSIGN_OR_RETURN(auto writer, storage_->Create(PathOf(name), /*header_bytes=*/0, bytes));
  FileWriter& used = *writer;
  files_.push_back({name, std::move(writer), ""});
  return std::make_unique<FileOfPrefix>(used);
}

absl::Status OutputPrefix::Add(const std::string& name, std::string_view bytes) {
  files_.push_back({name, nullptr, std::string(bytes)});
  return absl::OkStatus();
}

absl::Status OutputPrefix::Copy(const std::string& name, const std::string& source) {
  CAIRN_ASSIGN_OR_RETURN(const ForeignFile from, ForeignFile::Open(source));
  if (from.bytes() <= kOutputPieceBytes) {
    CAIRN_ASSIGN_OR_RETURN(const std::string bytes, from.Read(0, from.bytes()));
    return Add(name, bytes);
  }
  CAIRN_ASSIGN_OR_RETURN(const auto to, Begin(name, from.bytes()));
  AlignedBuffer piece(kOutputPieceBytes);
  for (uint64_t at = 0; at < from.bytes(); at += kOutputPieceBytes) {
    CAIRN_ASSIGN_OR_RETURN(const std::string bytes, from.Read(at, std::min(kOutputPieceBytes, from.bytes() - at)));
    std::copy(bytes.begin(), bytes.end(), piece.data());
    CAIRN_RETURN_IF_ERROR(to->Write(at, {piece.data(), bytes.size()}));
  }
  return absl::OkStatus();
}

absl::Status OutputPrefix::Publish() {
  // Some stores do not look at the name when an upload is completed.
  CAIRN_RETURN_IF_ERROR(CheckFree([&](std::string_view name) {
    return std::any_of(files_.begin(), files_.end(), [&](const File& file) { return file.name == name; });
  }));
  for (File& file : files_) {
    if (file.writer != nullptr) {
      CAIRN_RETURN_IF_ERROR(file.writer->Finish(""));
      continue;
    }
    const std::string path = PathOf(file.name);
    CAIRN_ASSIGN_OR_RETURN(const Put put, storage_->PutIfAbsent(path, file.bytes));
    if (put == Put::kExists) {
      return MakeError(Reason::kOutputExists,
                       absl::StrCat(storage_->FullPath(path), " was made by another program meanwhile"),
                       {{"file", storage_->FullPath(path)}});
    }
    added_.push_back(path);
  }
  CAIRN_RETURN_IF_ERROR(storage_->Sync(directory_));
  done_ = true;
  return absl::OkStatus();
}

}  // namespace cairn
