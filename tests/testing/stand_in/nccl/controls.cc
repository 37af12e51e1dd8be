#include "tests/testing/stand_in/nccl/controls.h"

#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

const int cairn_stand_in = 1;

namespace cairn::stand_in {
namespace {

// The times of files go in steps, so that a file which has just been written may be written again without a new time.
constexpr int64_t kStepNanoseconds = 50'000'000;

std::atomic<int> own_rank = -1;

int64_t Nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

// What the file says. It is parsed when it has changed: a worker asks several times for each step.
class SettingsFile {
 public:
  int64_t Find(const char* path, const std::string& name, int64_t otherwise) {
    const std::lock_guard lock(mutex_);
    Refresh(path);
    const std::string own = name + "." + std::to_string(own_rank);
    for (const Line& line : lines_) {
      if (line.name == name || line.name == own) return line.value;
    }
    return otherwise;
  }

 private:
  struct Line {
    std::string name;
    int64_t value = 0;
  };

  void Refresh(const char* path) {
    struct stat file = {};
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    const bool there = stat(path, &file) == 0;
    const bool known = there && path_ == path && file.st_ino == file_.st_ino && file.st_size == file_.st_size &&
                       Nanoseconds(file.st_mtim) == Nanoseconds(file_.st_mtim);
    if (known && settled_) return;
    path_ = path;
    file_ = file;
    settled_ = there && Nanoseconds(now) - Nanoseconds(file.st_mtim) > kStepNanoseconds;
    lines_.clear();
    std::ifstream text(path);
    for (Line line; text >> line.name >> line.value;) lines_.push_back(line);
  }

  std::mutex mutex_;
  std::string path_;
  struct stat file_ = {};
  bool settled_ = false;
  std::vector<Line> lines_;
};

}  // namespace

void SetRank(int rank) { own_rank = rank; }

int64_t NcclSetting(const char* name, int64_t otherwise) {
  // It is never destroyed: threads may run while the process ends.
  static SettingsFile& file = *new SettingsFile;
  const char* path = std::getenv("STAND_IN_NCCL");
  return path == nullptr ? otherwise : file.Find(path, name, otherwise);
}

}  // namespace cairn::stand_in
