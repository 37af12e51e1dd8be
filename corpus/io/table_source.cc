#include "corpus/io/table_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/file/full_transfer.h"
#include "common/file/unique_fd.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/nameless_file.h"
#include "corpus/io/object_source.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/output_place.h"
#include "corpus/io/python_process.h"

namespace cairn::corpus {
namespace {

constexpr char kProgram[] =
#include "corpus/io/table_reader_text.inc"
    ;

// A file has one process for each of this many bytes, because to start one takes half a second of a core.
constexpr uint64_t kBytesOfProcess = uint64_t{64} << 20;

class TableSource final : public ByteSource {
 public:
  // `file` is open at `bytes` bytes.
  TableSource(std::string path, UniqueFd file, uint64_t bytes, const SourceOptions& options)
      : path_(std::move(path)),
        file_(std::move(file)),
        bytes_(bytes),
        columns_(options.columns),
        stop_(options.stop),
        file_bytes_(options.file_bytes) {}

  absl::Status Start(int readers) {
    for (int i = 0; i < readers; ++i) {
      PythonProcess::Options options;
      options.program = kProgram;
      options.arguments = {absl::StrCat(i), absl::StrCat(readers)};
      options.arguments.insert(options.arguments.end(), columns_.begin(), columns_.end());
      options.file = file_.get();
      options.path = path_;
      options.name = absl::StrCat("the reader of ", path_);
      options.task = "reads Parquet and Arrow files";
      options.package = "pyarrow";
      options.advice =
          "If nobody ended it, look in the kernel's log whether memory ran out, and read the file with pyarrow to see "
          "whether it is damaged.";
      options.stop = stop_;
      CAIRN_ASSIGN_OR_RETURN(auto reader, PythonProcess::Start(std::move(options)));
      readers_.push_back(std::move(reader));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    while (!ended_) {
      if (lines_left_ == 0) {
        CAIRN_RETURN_IF_ERROR(NextFrame());
        continue;
      }
      CAIRN_ASSIGN_OR_RETURN(const size_t count, readers_[turn_]->Receive(buffer, std::min<size_t>(size, lines_left_)));
      lines_left_ -= static_cast<uint32_t>(count);
      return count;
    }
    return 0;
  }

 private:
  absl::Status NextFrame() {
    PythonProcess& reader = *readers_[turn_];
    CAIRN_ASSIGN_OR_RETURN(const PythonProcess::Frame frame, reader.ReceiveFrame());
    uint64_t part = 0;
    switch (frame.kind) {
      case 'L':
        lines_left_ = frame.length;
        return absl::OkStatus();
      case 'P':
        if (frame.length != sizeof(part)) break;
        CAIRN_RETURN_IF_ERROR(reader.ReceiveAll(reinterpret_cast<char*>(&part), sizeof(part)));
        Count(part);
        turn_ = (turn_ + 1) % readers_.size();
        return absl::OkStatus();
      case 'E':
        return reader.ReceiveFailure(frame);
      case 'Z':
        // Parts go around, so no other process has one either.
        Count(bytes_);
        ended_ = true;
        readers_.clear();
        return absl::OkStatus();
      default:
        break;
    }
    return reader.NoFrame();
  }

  // Counts bytes of the file as read, at most all of them.
  void Count(uint64_t bytes) {
    bytes = std::min(bytes, bytes_ - counted_);
    counted_ += bytes;
    if (file_bytes_ != nullptr) *file_bytes_ += bytes;
  }

  const std::string path_;
  const UniqueFd file_;
  const uint64_t bytes_;
  const std::vector<std::string> columns_;
  const std::atomic<bool>* const stop_;
  std::atomic<uint64_t>* const file_bytes_;
  std::vector<std::unique_ptr<PythonProcess>> readers_;
  size_t turn_ = 0;
  uint32_t lines_left_ = 0;  // of the frame that is being read
  uint64_t counted_ = 0;
  bool ended_ = false;
};

// pyarrow reads here and there, so an object has to be a file first.
absl::StatusOr<UniqueFd> CopyObject(ObjectStores& stores, const std::string& path, const SourceOptions& options) {
  const std::string directory = ScratchDirectoryFor(path);
  UniqueFd file = OpenNameless(directory, 0);
  if (!file.valid()) return OutputError("create a temporary file in", directory, errno);
  SourceOptions reading = options;
  reading.file_bytes = nullptr;
  CAIRN_ASSIGN_OR_RETURN(const auto source, OpenObjectSource(stores, path, 0, UINT64_MAX, reading));
  AlignedBuffer buffer(1 << 20);
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const size_t count, source->Read(buffer.data(), buffer.size()));
    if (count == 0) return file;
    if (const int error = WriteFully(file.get(), {buffer.data(), count}); error != 0) {
      return OutputError("write a temporary file in", directory, error);
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> OpenTableSource(const std::string& path, const SourceOptions& options) {
  UniqueFd file;
  if (ObjectStores* const stores = StoresOf(path)) {
    CAIRN_ASSIGN_OR_RETURN(file, CopyObject(*stores, path, options));
  } else {
    file = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO would wait for its writer
  }
  if (!file.valid()) return InputError("open", path, errno);
  struct stat found;
  if (fstat(file.get(), &found) != 0) return InputError("read", path, errno);
  if (!S_ISREG(found.st_mode)) {
    return MakeError(Reason::kInputUnreadable,
                     absl::StrCat(path, " is no regular file; Parquet and Arrow are not read as a stream"),
                     {{"file", path}, {"next", "Write it to a file first."}});
  }
  const auto bytes = static_cast<uint64_t>(found.st_size);
  const auto readers = static_cast<int>(
      std::min<uint64_t>(static_cast<uint64_t>(std::max(options.table_readers, 1)), 1 + bytes / kBytesOfProcess));
  auto source = std::make_unique<TableSource>(path, std::move(file), bytes, options);
  CAIRN_RETURN_IF_ERROR(source->Start(readers));
  return source;
}

}  // namespace cairn::corpus
