#include "corpus/io/table_source.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
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
#include "corpus/io/python_interpreter.h"

namespace cairn::corpus {
namespace {

constexpr char kProgram[] =
#include "corpus/io/table_reader_text.inc"
    ;

constexpr int kPollMilliseconds = 100;
constexpr int kPipeBytes = 1 << 20;
constexpr int kFile = 3;  // corpus/io/table_reader.py knows it
constexpr int kAbove = 10;
// A file has one process for each of this many bytes, because to start one takes half a second of a core.
constexpr uint64_t kBytesOfProcess = uint64_t{64} << 20;
constexpr size_t kHeaderBytes = 5;
constexpr size_t kMostMessageBytes = 64 << 10;
constexpr size_t kTailBytes = 250;  // at most half of a message's 512 bytes
constexpr absl::Duration kEndShortly = absl::Seconds(2);

// Moves a descriptor above those which the process gets, so that none takes the place of another.
UniqueFd Above(UniqueFd fd) { return UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, kAbove)); }

// One process. It is killed when this object goes, if it still runs.
class TableReader {
 public:
  TableReader(pid_t pid, UniqueFd frames, UniqueFd log) : pid_(pid), frames_(std::move(frames)), log_(std::move(log)) {}
  TableReader(TableReader&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), frames_(std::move(other.frames_)), log_(std::move(other.log_)) {}
  TableReader& operator=(TableReader&&) = delete;
  ~TableReader() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  int frames() const { return frames_.get(); }

  // Says how it has ended, after its output has ended.
  std::string HowItEnded() {
    const std::string name = absl::StrCat("process ", pid_);
    int status = 0;
    pid_t ended = 0;
    for (const absl::Time deadline = absl::Now() + kEndShortly; ended == 0 && absl::Now() < deadline;) {
      ended = waitpid(pid_, &status, WNOHANG);
      if (ended == 0) absl::SleepFor(absl::Milliseconds(5));
    }
    if (ended != pid_) return absl::StrCat(name, " has closed its output");
    pid_ = -1;
    std::string said = Said();
    if (!said.empty()) said = absl::StrCat(": ", said);
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      return absl::StrCat(name, " was ended by signal ", signal, " (", strsignal(signal), ")", said);
    }
    return absl::StrCat(name, " has ended with status ", WEXITSTATUS(status), said);
  }

 private:
  // Returns the end of what it has written to standard error.
  std::string Said() const {
    struct stat found;
    if (fstat(log_.get(), &found) != 0) return "";
    const auto begin = std::max<off_t>(0, found.st_size - static_cast<off_t>(kTailBytes));
    std::string text(kTailBytes, '\0');
    const ssize_t count = pread(log_.get(), text.data(), text.size(), begin);
    text.resize(count < 0 ? 0 : static_cast<size_t>(count));
    absl::StripAsciiWhitespace(&text);
    return text;
  }

  pid_t pid_;
  UniqueFd frames_, log_;
};

absl::StatusOr<TableReader> StartReader(const std::string& path, int file, int number, int readers,
                                        const std::vector<std::string>& columns) {
  const auto failed = [&](std::string_view what, int error) {
    return MakeError(Reason::kInputUnreadable,
                     absl::StrCat(path, ": ", std::string(what), ": ", std::generic_category().message(error)),
                     {{"file", path}});
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed("no pipe for its reader", errno);
  UniqueFd own(ends[0]);
  const UniqueFd other = Above(UniqueFd(ends[1]));
  fcntl(own.get(), F_SETPIPE_SZ, kPipeBytes);  // only the speed suffers if it is refused
  UniqueFd log = Above(UniqueFd(memfd_create("cairn-table-reader", MFD_CLOEXEC)));
  if (!log.valid() || !other.valid()) return failed("no memory for its reader", errno);

  const std::string interpreter = PythonInterpreter();
  std::vector<std::string> arguments = {interpreter, "-c", kProgram, absl::StrCat(number), absl::StrCat(readers)};
  arguments.insert(arguments.end(), columns.begin(), columns.end());
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, other.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log.get(), STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, file, kFile);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  // Ctrl-C is for this process, which then ends the reader.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, interpreter.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return MakeError(Reason::kUnsupported,
                     absl::StrCat(path, ": ", interpreter, ", which reads Parquet and Arrow files, cannot be started: ",
                                  std::generic_category().message(error)),
                     {{"file", path},
                      {"next",
                       "Install Python 3 and pyarrow, or name the interpreter by the environment variable "
                       "CAIRN_PYTHON."}});
  }
  return TableReader(pid, std::move(own), std::move(log));
}

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
      CAIRN_ASSIGN_OR_RETURN(TableReader reader, StartReader(path_, file_.get(), i, readers, columns_));
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
      CAIRN_ASSIGN_OR_RETURN(const size_t count, Receive(buffer, std::min<size_t>(size, lines_left_)));
      lines_left_ -= static_cast<uint32_t>(count);
      return count;
    }
    return 0;
  }

 private:
  // Reads up to `size` bytes from the process whose turn it is; at least one.
  absl::StatusOr<size_t> Receive(char* buffer, size_t size) {
    TableReader& reader = readers_[turn_];
    while (true) {
      if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) {
        return MakeError(Reason::kInterrupted, "interrupted");
      }
      pollfd waiting{reader.frames(), POLLIN, 0};
      const int ready = poll(&waiting, 1, kPollMilliseconds);
      if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
      const ssize_t count = read(reader.frames(), buffer, size);
      if (count > 0) return static_cast<size_t>(count);
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (count < 0) return InputError("read", path_, errno);
      return MakeError(
          Reason::kInputUnreadable,
          absl::StrCat("the reader of ", path_, " (", PythonInterpreter(), ") did not end well: ", reader.HowItEnded()),
          {{"file", path_},
           {"next",
            "If nobody ended it, look in the kernel's log whether memory ran out, and read the file with "
            "pyarrow to see whether it is damaged."}});
    }
  }
  absl::Status ReceiveAll(char* buffer, size_t size) {
    while (size > 0) {
      CAIRN_ASSIGN_OR_RETURN(const size_t count, Receive(buffer, size));
      buffer += count;
      size -= count;
    }
    return absl::OkStatus();
  }

  absl::Status NextFrame() {
    std::array<char, kHeaderBytes> header;
    CAIRN_RETURN_IF_ERROR(ReceiveAll(header.data(), header.size()));
    uint32_t length;
    std::memcpy(&length, header.data() + 1, sizeof(length));
    static_assert(std::endian::native == std::endian::little);
    uint64_t part = 0;
    switch (header[0]) {
      case 'L':
        lines_left_ = length;
        return absl::OkStatus();
      case 'P':
        if (length != sizeof(part)) break;
        CAIRN_RETURN_IF_ERROR(ReceiveAll(reinterpret_cast<char*>(&part), sizeof(part)));
        Count(part);
        turn_ = (turn_ + 1) % readers_.size();
        return absl::OkStatus();
      case 'E':
        return Failed(length);
      case 'Z':
        // Parts go around, so no other process has one either.
        Count(bytes_);
        ended_ = true;
        readers_.clear();
        return absl::OkStatus();
      default:
        break;
    }
    return MakeError(Reason::kInputUnreadable, absl::StrCat("the reader of ", path_, " has sent what is no frame"),
                     {{"file", path_}});
  }

  // Counts bytes of the file as read, at most all of them.
  void Count(uint64_t bytes) {
    bytes = std::min(bytes, bytes_ - counted_);
    counted_ += bytes;
    if (file_bytes_ != nullptr) *file_bytes_ += bytes;
  }

  absl::Status Failed(uint32_t length) {
    std::string content(std::min<size_t>(length, kMostMessageBytes), '\0');
    CAIRN_RETURN_IF_ERROR(ReceiveAll(content.data(), content.size()));
    const auto json = nlohmann::json::parse(content, nullptr, /*allow_exceptions=*/false);
    const auto text = [&](const char* key) {
      const auto found = json.find(key);
      return json.is_object() && found != json.end() && found->is_string() ? found->get<std::string>() : "";
    };
    const std::optional<Reason> reason = ReasonFromName(text("reason"));
    return MakeError(reason.value_or(Reason::kInputUnreadable), absl::StrCat(path_, ": ", text("message")),
                     {{"file", path_}, {"next", text("next")}});
  }

  const std::string path_;
  const UniqueFd file_;
  const uint64_t bytes_;
  const std::vector<std::string> columns_;
  const std::atomic<bool>* const stop_;
  std::atomic<uint64_t>* const file_bytes_;
  std::vector<TableReader> readers_;
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
  if (file.valid()) file = Above(std::move(file));
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
