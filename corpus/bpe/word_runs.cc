#include "corpus/bpe/word_runs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <queue>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/file/atomic_write.h"
#include "common/file/full_transfer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"

namespace cairn::corpus {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 10;
constexpr size_t kHeaderBytes = 12;

class RunReader {
 public:
  explicit RunReader(const WordRun& run) : run_(run), file_(std::fopen(run.path.c_str(), "rbe")) {}
  ~RunReader() {
    if (file_ != nullptr) std::fclose(file_);
  }
  RunReader(const RunReader&) = delete;
  RunReader& operator=(const RunReader&) = delete;

  const std::string& word() const { return word_; }
  uint64_t count() const { return count_; }
  bool done() const { return done_; }

  absl::Status Advance() {
    if (file_ == nullptr) return Bad(Reason::kFileTruncated, "cannot be opened");
    if (read_ == run_.bytes) {
      done_ = true;
      char more;
      if (std::fread(&more, 1, 1, file_) != 0) return Bad(Reason::kFileTruncated, "is longer than it was");
      if (crc_ != run_.crc32c) return Bad(Reason::kChecksumMismatch, "does not have the bytes that were written");
      return absl::OkStatus();
    }
    char header[kHeaderBytes];
    CAIRN_RETURN_IF_ERROR(Read(header, sizeof(header)));
    uint32_t length;
    std::memcpy(&length, header, 4);
    std::memcpy(&count_, header + 4, 8);
    if (length > run_.bytes - read_) return Bad(Reason::kChecksumMismatch, "has a record that is longer than the file");
    word_.resize(length);
    return Read(word_.data(), length);
  }

 private:
  absl::Status Read(char* out, size_t size) {
    if (std::fread(out, 1, size, file_) != size) return Bad(Reason::kFileTruncated, "is shorter than it was");
    crc_ = ExtendCrc32c(crc_, out, size);
    read_ += size;
    return absl::OkStatus();
  }
  absl::Status Bad(Reason reason, const char* what) const {
    return MakeError(reason, absl::StrCat(run_.path, ": the file of word counts ", what), {{"file", run_.path}});
  }

  const WordRun& run_;
  std::FILE* file_;
  uint64_t read_ = 0;
  uint32_t crc_ = 0;
  std::string word_;
  uint64_t count_ = 0;
  bool done_ = false;
};

}  // namespace

absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes) {
  const AtomicWriteOptions options = {.replace = true, .durable = AtomicWriteOptions::Durable::kBytes, .mode = 0666};
  CAIRN_RETURN_IF_ERROR(WriteAtomically(path, bytes, options).put.status());
  return SyncDirectoryOf(path);
}

absl::StatusOr<RunWriter> RunWriter::Create(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.valid()) return OutputError("create", path, errno);
  return RunWriter(std::move(fd), path);
}

RunWriter::~RunWriter() {
  if (fd_.valid()) unlink(run_.path.c_str());
}

absl::Status RunWriter::Add(std::string_view word, uint64_t count) {
  const auto length = static_cast<uint32_t>(word.size());
  buffer_.append(reinterpret_cast<const char*>(&length), sizeof(length));
  buffer_.append(reinterpret_cast<const char*>(&count), sizeof(count));
  buffer_.append(word);
  return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush();
}

absl::Status RunWriter::Flush() {
  run_.crc32c = ExtendCrc32c(run_.crc32c, buffer_.data(), buffer_.size());
  run_.bytes += buffer_.size();
  if (const int error = WriteFully(fd_.get(), buffer_); error != 0) return OutputError("write", run_.path, error);
  buffer_.clear();
  return absl::OkStatus();
}

absl::StatusOr<WordRun> RunWriter::Finish() {
  CAIRN_RETURN_IF_ERROR(Flush());
  if (fsync(fd_.get()) != 0) return OutputError("fsync", run_.path, errno);
  fd_ = UniqueFd();
  return run_;
}

absl::StatusOr<WordRun> WriteRun(const WordTable& words, const std::string& path) {
  std::vector<std::pair<std::string_view, uint64_t>> sorted;
  sorted.reserve(words.size());
  words.ForEach([&](std::string_view word, uint64_t count) { sorted.emplace_back(word, count); });
  std::sort(sorted.begin(), sorted.end());
  CAIRN_ASSIGN_OR_RETURN(RunWriter writer, RunWriter::Create(path));
  for (const auto& [word, count] : sorted) CAIRN_RETURN_IF_ERROR(writer.Add(word, count));
  return writer.Finish();
}

absl::Status MergeRuns(const std::vector<WordRun>& runs,
                       const std::function<absl::Status(std::string_view, uint64_t)>& visit) {
  std::vector<std::unique_ptr<RunReader>> readers;
  const auto later = [](const RunReader* a, const RunReader* b) { return a->word() > b->word(); };
  std::priority_queue<RunReader*, std::vector<RunReader*>, decltype(later)> queue(later);
  for (const WordRun& run : runs) {
    readers.push_back(std::make_unique<RunReader>(run));
    CAIRN_RETURN_IF_ERROR(readers.back()->Advance());
    if (!readers.back()->done()) queue.push(readers.back().get());
  }
  std::string word;
  while (!queue.empty()) {
    word = queue.top()->word();
    uint64_t count = 0;
    while (!queue.empty() && queue.top()->word() == word) {
      RunReader* const reader = queue.top();
      queue.pop();
      count += reader->count();
      CAIRN_RETURN_IF_ERROR(reader->Advance());
      if (!reader->done()) queue.push(reader);
    }
    CAIRN_RETURN_IF_ERROR(visit(word, count));
  }
  return absl::OkStatus();
}

}  // namespace cairn::corpus
