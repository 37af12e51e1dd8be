#include "cli/local/run_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/digest.h"
#include "common/base/mutex.h"
#include "common/file/atomic_write.h"
#include "common/file/file_advice.h"
#include "common/file/full_transfer.h"
#include "common/file/own_directory.h"
#include "common/rpc/address.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

// The longest path below the directory is "/local4095/descriptors.sock".
constexpr size_t kLongestPath = sizeof(sockaddr_un::sun_path) - 1 - 27;

absl::Status Fault(const std::string& path, absl::string_view why, const std::string& next = "") {
  ErrorMetadata metadata = {{"directory", path}};
  if (!next.empty()) metadata.emplace_back("next", next);
  return MakeError(Reason::kSocketDirectory, absl::StrCat(path, ": ", why), metadata);
}

absl::Status Fault(const std::string& path, absl::string_view what, int error) {
  return Fault(path, absl::StrCat(what, ": ", std::generic_category().message(error)),
               NextWithoutFile(error, path, "--run-directory"));
}

absl::Status MakePrivate(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Fault(path, "it cannot be made", errno);
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return Fault(path, "its properties cannot be read", errno);
  if (const std::string why = WhyNotOwn(info, geteuid()); !why.empty()) return Fault(path, absl::StrCat("it ", why));
  return absl::OkStatus();
}

struct flock WholeFile() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// What an agent makes in the directory of its sockets.
constexpr const char* kSockets[] = {"/agent.sock", "/descriptors.sock", "/metrics.sock"};
constexpr char kRank[] = "rank";
constexpr char kLocal[] = "local";

// Returns whether this is the name of a directory of a rank's sockets.
bool IsOfRank(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kRank) && !absl::ConsumePrefix(&name, kLocal)) return false;
  return !name.empty() && std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

constexpr char kPrefix[] = "up-";
// Two files: the first has the job and its root, one per line; the second has the coordinator's address.
constexpr char kJobFile[] = "/job";
constexpr char kAddressFile[] = "/coordinator.address";
constexpr uint64_t kMostBytes = 8192;  // of such a file

bool IsPrivate(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && WhyNotOwn(info, geteuid()).empty();
}

// Returns the preferred directory for all run directories of this user.
std::string PreferredBase() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const bool usable = runtime != nullptr && runtime[0] == '/' && access(runtime, W_OK) == 0;
  return absl::StrCat(usable ? runtime : "/tmp", "/cairn-", geteuid());
}

// Returns whether the path exists and is no directory of this user. In a directory like /tmp any user can cause this.
bool IsForeign(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && (!S_ISDIR(info.st_mode) || info.st_uid != geteuid());
}

// Returns, sorted, the directories that this user has made because the preferred one is foreign. Other users cannot
// guess a name of mkdtemp, and in a directory like /tmp only the owner can rename or remove it.
std::vector<std::string> OwnOnesBeside(const std::string& preferred) {
  const std::filesystem::path path(preferred);
  const std::string prefix = path.filename().string() + "-";
  std::vector<std::string> own;
  std::error_code error;
  std::filesystem::directory_iterator entry(path.parent_path(), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string each = entry->path().string();
    if (entry->path().filename().string().starts_with(prefix) && IsPrivate(each)) own.push_back(each);
  }
  std::sort(own.begin(), own.end());
  return own;
}

// Returns the directory for all run directories of this user. If the preferred one is foreign: another one.
std::string Base() {
  std::string preferred = PreferredBase();
  if (!IsForeign(preferred)) return preferred;
  if (const std::vector<std::string> own = OwnOnesBeside(preferred); !own.empty()) return own.front();
  std::string made = preferred + "-XXXXXX";
  return mkdtemp(made.data()) == nullptr ? preferred : made;
}

// Returns the lines of a small file, or nothing.
std::vector<std::string> LinesOf(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return {};
  const auto text = ReadWhole(fd.get(), path, kMostBytes);
  if (!text.ok()) return {};
  return absl::StrSplit(absl::StripSuffix(*text, "\n"), '\n');
}

std::string LockOf(const std::string& path) { return path + "/lock"; }

// The locks that this process holds. A lock of fcntl is the process's, and is gone when the process closes any
// descriptor of its file: so a file that stands here must not be opened to look who has locked it. Thread-safe.
class OwnLocks {
 public:
  static OwnLocks& Get() {
    static auto* const locks = new OwnLocks;
    return *locks;
  }
  void Add(const struct stat& file) {
    MutexLock lock(mutex_);
    files_.insert({file.st_dev, file.st_ino});
  }
  void Remove(const struct stat& file) {
    MutexLock lock(mutex_);
    files_.erase({file.st_dev, file.st_ino});
  }
  bool Has(const std::string& path) {
    struct stat file = {};
    if (::stat(path.c_str(), &file) != 0) return false;
    MutexLock lock(mutex_);
    return files_.contains({file.st_dev, file.st_ino});
  }

 private:
  Mutex mutex_;
  std::set<std::pair<dev_t, ino_t>> files_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::string RunDirectory::PathOf(const std::string& job) {
  const std::string prefix = absl::StrCat(Base(), "/", kPrefix);
  const bool fits = prefix.size() + job.size() <= kLongestPath && job.find('/') == std::string::npos;
  return prefix + (fits ? job : DigestHex(Digest(job)).substr(0, 16));
}

absl::StatusOr<std::unique_ptr<RunDirectory>> RunDirectory::Take(const std::string& path, bool others_may_enter) {
  if (path.size() > kLongestPath || path.empty() || path[0] != '/') {
    return Fault(path,
                 absl::StrCat("the directory of sockets is an absolute path of at most ", kLongestPath, " bytes"));
  }
  const std::string parent = path.substr(0, path.rfind('/'));
  if (!parent.empty() && access(parent.c_str(), F_OK) != 0) CAIRN_RETURN_IF_ERROR(MakePrivate(parent));
  CAIRN_RETURN_IF_ERROR(MakePrivate(path));
  if (others_may_enter && chmod(path.c_str(), 0711) != 0) {
    return Fault(path, "its mode cannot be set", errno);
  }
  if (OwnLocks::Get().Has(LockOf(path))) return Fault(path, "this process holds it already");
  UniqueFd fd(::open(LockOf(path).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Fault(path, "its lock cannot be made", errno);
  struct flock lock = WholeFile();
  if (fcntl(fd.get(), F_SETLK, &lock) != 0) {
    const auto holder = HolderOf(path);
    const std::vector<std::string> about = LinesOf(path + kJobFile);
    const std::string job = about.empty() || about[0].empty() ? "JOB" : about[0];
    return Fault(
        path,
        absl::StrCat("another `cairn up` or `cairn run` of job ", job, " holds it",
                     holder.has_value() ? absl::StrCat(", process ", *holder) : "",
                     about.size() > 1 && !about[1].empty() ? absl::StrCat(", with the root ", about[1]) : ""),
        absl::StrCat("Give this one another name, --job NAME, or end that one: `cairn down --job ", job, "`."));
  }
  struct stat file = {};
  if (fstat(fd.get(), &file) == 0) OwnLocks::Get().Add(file);
  return std::unique_ptr<RunDirectory>(new RunDirectory(path, std::move(fd)));
}

RunDirectory::~RunDirectory() {
  struct stat file = {};
  if (fstat(lock_.get(), &file) == 0) OwnLocks::Get().Remove(file);
}

std::optional<pid_t> RunDirectory::HolderOf(const std::string& path) {
  if (OwnLocks::Get().Has(LockOf(path))) return getpid();
  const UniqueFd fd(::open(LockOf(path).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct flock lock = WholeFile();
  if (!fd.valid() || fcntl(fd.get(), F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  return lock.l_pid;
}

absl::Status RunDirectory::Describe(const std::string& job, const std::string& root) const {
  (void)unlink((path_ + kAddressFile).c_str());  // of the previous run, which may have had a coordinator
  const std::string path = path_ + kJobFile;
  return WithNextWithoutFile(
      WriteAtomically(path, absl::StrCat(job, "\n", root, "\n"),
                      {.replace = true, .durable = AtomicWriteOptions::Durable::kNothing, .mode = 0600})
          .put.status(),
      path, "--run-directory");
}

std::vector<RunDirectory::Running> RunDirectory::RunningCoordinators() {
  std::vector<Running> running;
  // Makes no directory, unlike Base().
  const std::string preferred = PreferredBase();
  const std::vector<std::string> own = IsForeign(preferred) ? OwnOnesBeside(preferred) : std::vector{preferred};
  const std::string base = own.empty() ? preferred : own.front();
  if (!IsPrivate(base)) return running;
  std::error_code error;
  std::filesystem::directory_iterator entry(base, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!entry->path().filename().string().starts_with(kPrefix) || !IsPrivate(path)) continue;
    const std::vector<std::string> job = LinesOf(path + kJobFile), address = LinesOf(path + kAddressFile);
    if (job.empty() || job[0].empty() || address.empty() || !IsHostPort(address[0])) continue;
    if (HolderOf(path).has_value()) running.push_back({job[0], address[0], job.size() > 1 ? job[1] : ""});
  }
  std::sort(running.begin(), running.end(), [](const Running& a, const Running& b) { return a.job < b.job; });
  return running;
}

void RunDirectory::RemoveOtherSockets(const std::vector<std::string>& own) const {
  std::error_code error;
  std::filesystem::directory_iterator entry(path_, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored) || entry->is_symlink(ignored)) continue;
    if (!IsOfRank(entry->path().filename().string())) continue;
    const std::string directory = entry->path().string();
    if (std::find(own.begin(), own.end(), directory) != own.end()) continue;
    for (const char* name : kSockets) {
      const std::string socket = directory + name;
      if (std::filesystem::is_socket(std::filesystem::symlink_status(socket, ignored))) (void)unlink(socket.c_str());
    }
  }
}

std::string RunDirectory::SocketDirectory(int rank) const { return absl::StrCat(path_, "/", kRank, rank); }

std::string RunDirectory::AgentPattern() const { return absl::StrCat("unix:", path_, "/rank{rank}/agent.sock"); }

std::string RunDirectory::LocalSocketDirectory(int number) const { return absl::StrCat(path_, "/", kLocal, number); }

std::string RunDirectory::LocalAgentPattern() const {
  return absl::StrCat("unix:", path_, "/local{local_rank}/agent.sock");
}

std::string RunDirectory::NewLog(const std::string& name) const {
  const std::string log = absl::StrCat(path_, "/", name, ".log");
  (void)std::rename(log.c_str(), (log + ".1").c_str());  // there may be none
  return log;
}

}  // namespace cairn::cli
