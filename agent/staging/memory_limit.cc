#include "agent/staging/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

// Version 1 of control groups represents "no limit" by a number near 2^63.
constexpr uint64_t kUnlimited = uint64_t{1} << 60;

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  uint64_t number = 0;
  if (!(file >> word) || !absl::SimpleAtoi(word, &number)) return std::nullopt;  // also for "max"
  return number;
}

// Returns the value behind `key` in lines of "key value" or "key:  value kB".
uint64_t ReadKey(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    uint64_t number = 0;
    if (words >> name >> number && name == key) return number;
  }
  return 0;
}

// Adds the limits of one group and of those above it.
void AddGroups(const std::string& mount, std::string group, bool version2, std::vector<MemoryLimit>& limits) {
  const char* limit_file = version2 ? "memory.max" : "memory.limit_in_bytes";
  const char* usage_file = version2 ? "memory.current" : "memory.usage_in_bytes";
  const char* cache_key = version2 ? "inactive_file" : "total_inactive_file";
  while (true) {
    const std::string directory = absl::StrCat(mount, group == "/" ? "" : group);
    const auto limit = ReadNumber(absl::StrCat(directory, "/", limit_file));
    if (limit && *limit < kUnlimited) {
      const uint64_t usage = ReadNumber(absl::StrCat(directory, "/", usage_file)).value_or(0);
      const uint64_t cache = ReadKey(absl::StrCat(directory, "/memory.stat"), cache_key);
      limits.push_back({absl::StrCat(limit_file, " of ", directory), *limit, usage - std::min(usage, cache)});
    }
    if (group.empty() || group == "/") return;
    group.resize(group.rfind('/'));
  }
}

}  // namespace

std::vector<MemoryLimit> ReadMemoryLimits(const std::string& root) {
  std::vector<MemoryLimit> limits;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2][0] != '/') continue;
    if (parts[0] == "0" && parts[1].empty()) {
      AddGroups(root + "/sys/fs/cgroup", parts[2], true, limits);
    } else if (const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
               std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      AddGroups(root + "/sys/fs/cgroup/memory", parts[2], false, limits);
    }
  }
  const uint64_t available = ReadKey(root + "/proc/meminfo", "MemAvailable:") * 1024;
  if (available > 0) limits.push_back({"MemAvailable of the machine", available, 0});
  return limits;
}

absl::Status CheckMemory(uint64_t bytes, uint64_t held, uint64_t budget, const std::vector<MemoryLimit>& limits) {
  const auto size = [](uint64_t number) { return FormatSize(static_cast<int64_t>(number)); };
  const auto refuse = [&](const std::string& source, uint64_t limit, uint64_t used) {
    // The message says how much is missing, because the rounded sizes may look as if they fit.
    const std::string missing = size(bytes - (limit - std::min(limit, used)));
    return MakeError(Reason::kMemoryLimit,
                     absl::StrCat(size(bytes), " of shared memory are needed, but of ", source, ", ", size(limit), ", ",
                                  size(used), " are taken: ", missing, " are missing"),
                     {{"bytes", absl::StrCat(bytes)},
                      {"limit", absl::StrCat(limit)},
                      {"used", absl::StrCat(used)},
                      {"source", source}});
  };
  const auto fits = [&](uint64_t limit, uint64_t used) { return used <= limit && bytes <= limit - used; };
  if (budget != 0 && !fits(budget, held)) return refuse("--memory-budget", budget, held);
  for (const MemoryLimit& limit : limits) {
    if (!fits(limit.limit, limit.used)) return refuse(limit.source, limit.limit, limit.used);
  }
  return absl::OkStatus();
}

}  // namespace cairn
