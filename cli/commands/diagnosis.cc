#include "cli/commands/diagnosis.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/base/shell_word.h"
#include "common/base/version.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"

namespace cairn::cli {
namespace {

using Level = Finding::Level;

// With fewer, a coordinator or an agent of a large job runs out of connections.
constexpr uint64_t kOpenFilesWanted = 4096;
constexpr uint64_t kInodesWanted = 100000;
// A network file system rounds times to seconds.
constexpr absl::Duration kClockTolerance = absl::Seconds(2);
// An upload belongs to a save that may go on for so long.
constexpr absl::Duration kUploadOfSave = absl::Hours(24);
constexpr absl::Duration kClockFault = absl::Minutes(1);
// In addition to its staging buffer an agent needs two read buffers of 32 MiB, and memory for itself.
constexpr uint64_t kBesidesTheSlab = uint64_t{128} << 20;

std::string Size(uint64_t bytes) { return FormatSize(static_cast<int64_t>(bytes)); }

Finding OfStatus(const std::string& check, const absl::Status& status) {
  return {Level::kFault, check, std::string(status.message()), NextActionOf(status)};
}

}  // namespace

std::string LevelName(Finding::Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kNote:
      return "note";
    case Level::kWarning:
      return "warning";
    case Level::kFault:
      return "fault";
  }
  return "";
}

Finding JudgeRoot(const std::string& root, const absl::Status& probe) {
  if (!probe.ok()) return OfStatus("root", probe);
  return {Level::kOk, "root", absl::StrCat(root, ": files can be created there atomically and exclusively"), ""};
}

Finding JudgeFreeSpace(const StorageFacts::FreeSpace& free, uint64_t state) {
  const std::string there = absl::StrCat(Size(free.bytes), " are free");
  const std::string next = "Make room: `cairn prune JOB --keep-last 3 --dry-run` shows what could be deleted.";
  if (free.all_inodes > 0 && free.inodes < kInodesWanted) {
    return {Level::kWarning, "free space",
            absl::StrCat("only ", free.inodes, " more files fit; a checkpoint has two for each rank"), next};
  }
  if (state == 0)
    return {Level::kNote, "free space", absl::StrCat(there, "; the size of a checkpoint is not known"), ""};
  const std::string with_state = absl::StrCat(there, "; the last checkpoint has ", Size(state));
  if (free.bytes < state)
    return {Level::kFault, "free space", absl::StrCat(with_state, ", so there is no room for the next one"), next};
  if (free.bytes < 3 * state) {
    return {Level::kWarning, "free space", absl::StrCat(with_state, ", so there is room for few more"), next};
  }
  return {Level::kOk, "free space", with_state, ""};
}

Finding JudgeDirectIo(int error) {
  if (error == 0) return {Level::kOk, "direct I/O", "writes bypass the page cache", ""};
  return {Level::kWarning, "direct I/O",
          absl::StrCat("O_DIRECT does not work here (", std::generic_category().message(error),
                       "), so saves go through the page cache, whose memory counts in a container"),
          "Use a file system with O_DIRECT, or leave room in the memory limit for what is written."};
}

Finding JudgeMemory(const std::vector<MemoryLimit>& limits, uint64_t rank_state) {
  if (limits.empty()) return {Level::kNote, "memory", "no limit could be read", ""};
  const auto left = [](const MemoryLimit& limit) { return limit.limit - std::min(limit.limit, limit.used); };
  const MemoryLimit& tightest = *std::min_element(
      limits.begin(), limits.end(), [&](const MemoryLimit& a, const MemoryLimit& b) { return left(a) < left(b); });
  const std::string there = absl::StrCat(Size(left(tightest)), " are left of ", tightest.source);
  if (rank_state == 0)
    return {Level::kNote, "memory", absl::StrCat(there, "; the size of a rank's state is not known"), ""};
  const uint64_t needed = rank_state + kBesidesTheSlab;
  const std::string text = absl::StrCat(there, "; an agent needs ", Size(needed), " for a state of ", Size(rank_state));
  if (left(tightest) >= needed) return {Level::kOk, "memory", text, ""};
  return {Level::kFault, "memory", text,
          absl::StrCat("Raise the limit by ", Size(needed - left(tightest)),
                       " at least, or hold less of the state on each rank.")};
}

Finding JudgeClock(absl::Duration storage_ahead) {
  const absl::Duration off = std::max(storage_ahead, -storage_ahead);
  const std::string text =
      absl::StrCat("the storage's clock is ", DurationText(off),
                   storage_ahead < absl::ZeroDuration() ? " behind" : " ahead of", " this machine's");
  if (off <= kClockTolerance) return {Level::kOk, "clock", text, ""};
  return {off > kClockFault ? Level::kFault : Level::kWarning, "clock", text,
          "Synchronize both clocks by NTP: times of checkpoints are compared with times of files."};
}

Finding JudgeUploads(const StorageFacts::Uploads& uploads, absl::Time now) {
  if (uploads.count == 0) return {Level::kOk, "uploads", "no upload was left unfinished", ""};
  const absl::Duration age = now - uploads.oldest;
  const std::string text = absl::StrCat(uploads.count, uploads.count == 1 ? " upload is" : " uploads are",
                                        " unfinished, the oldest was begun ", DurationText(age), " ago");
  if (age <= kUploadOfSave) return {Level::kOk, "uploads", text, ""};
  return {Level::kWarning, "uploads", text,
          "They cost money. A starting coordinator removes those that are older than a day; let a rule of the bucket "
          "do so too (AbortIncompleteMultipartUpload)."};
}

std::vector<Finding> JudgeFacts(const StorageFacts& facts, uint64_t state, absl::Time now) {
  std::vector<Finding> findings;
  if (facts.free.has_value()) findings.push_back(JudgeFreeSpace(*facts.free, state));
  if (facts.direct_error.has_value()) findings.push_back(JudgeDirectIo(*facts.direct_error));
  if (facts.clocks.has_value()) findings.push_back(JudgeClock(facts.clocks->storage - facts.clocks->machine));
  if (facts.unfinished_uploads.has_value()) findings.push_back(JudgeUploads(*facts.unfinished_uploads, now));
  return findings;
}

Finding JudgeOpenFiles(uint64_t limit) {
  const std::string text = absl::StrCat(limit, " files and connections may be open");
  if (limit >= kOpenFilesWanted) return {Level::kOk, "open files", text, ""};
  return {Level::kWarning, "open files", text,
          absl::StrCat("Raise the hard limit (ulimit -Hn, LimitNOFILE) to ", kOpenFilesWanted,
                       ": a coordinator has a connection for each rank.")};
}

Finding JudgeOwnName(const OwnName& own) {
  if (own.has_address) return {Finding::Level::kOk, "own name", absl::StrCat(own.name, " has an address"), ""};
  return {Finding::Level::kWarning, "own name", TextOfNoAddress(own.name), NextOfNoAddress(own.name)};
}

Finding JudgeHugePages(const HugePages& pages) {
  if (pages.by_itself) {
    return {Level::kOk, "huge pages", "the kernel gives huge pages to shared memory, where it has some", ""};
  }
  if (pages.set_aside > 0) {
    return {Level::kNote, "huge pages",
            absl::StrCat(FormatSize(static_cast<int64_t>(pages.set_aside * kHugePageBytes)),
                         " are set aside, which an agent takes with --huge-pages"),
            ""};
  }
  return {Level::kNote, "huge pages",
          "the kernel gives shared memory ordinary pages, so that first saves and cold loads take longer",
          "As root, on the machine: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"};
}

Finding JudgePidNamespaces(bool by_kernel) {
  if (by_kernel)
    return {Level::kOk, "PID namespaces", "the agent sees at once when a trainer in another container ends", ""};
  return {Level::kNote, "PID namespaces",
          "this kernel has no SO_PEERPIDFD (Linux 6.5), so the agent notices the end of a trainer in another "
          "container only when the trainer's connection ends",
          ""};
}

Finding JudgeSockets(const std::string& directory, const absl::Status& made) {
  if (!made.ok()) return OfStatus("sockets", made);
  return {Level::kOk, "sockets", absl::StrCat(directory, " can hold sockets, by which memory can be shared"), ""};
}

Finding JudgeCoordinator(const std::string& address, const absl::StatusOr<std::string>& version) {
  if (!version.ok()) return OfStatus("coordinator", version.status());
  const std::string text = absl::StrCat(address, " answers, version ", *version);
  if (*version == kVersion) return {Level::kOk, "coordinator", text, ""};
  return {Level::kWarning, "coordinator", absl::StrCat(text, "; this command is ", std::string(kVersion)),
          "Run one version everywhere; docs/compatibility.md says in which order to upgrade."};
}

Finding JudgeServedRoot(const std::string& root, const std::string& served, std::optional<bool> same) {
  if (same == true) return {Level::kOk, "served root", absl::StrCat("the coordinator serves ", root), ""};
  if (!same.has_value()) {
    return {
        Level::kWarning, "served root",
        absl::StrCat("the coordinator serves ", served, ", which is not on this machine, and ", root, " was looked at"),
        "Mount the coordinator's storage here at the same path, and give that path."};
  }
  return {Level::kFault, "served root",
          absl::StrCat("the coordinator serves ", served, ", which is another directory here than ", root),
          absl::StrCat("Give --root ", ForShell(served),
                       ", or mount the same storage on all machines: an agent whose root is "
                       "another one is refused.")};
}

Finding JudgeGracePeriod(absl::Duration grace, std::optional<absl::Duration> longest) {
  const std::string given = absl::StrCat("the grace period is ", DurationText(grace));
  if (!longest.has_value()) {
    return {Level::kNote, "grace period", absl::StrCat(given, "; no save has been measured yet"),
            "Save once, then run this again."};
  }
  const std::string text = absl::StrCat(given, "; the longest recent save took ", DurationText(*longest));
  // A save begins only at the training loop's next step, which takes time too.
  if (grace >= 2 * *longest) return {Level::kOk, "grace period", text, ""};
  const std::string next =
      absl::StrCat("Set it to ", DurationText(3 * *longest), " and the time of a training step at least.");
  return {grace < *longest ? Level::kFault : Level::kWarning, "grace period", text, next};
}

Finding GraceNotCompared(const std::string& why, const std::string& next) {
  return {Level::kWarning, "grace period", absl::StrCat("it was not compared with saves: ", why), next};
}

Finding NameMeasuredJob(const std::string& job, size_t jobs) {
  if (jobs == 1) return {Level::kOk, "job", absl::StrCat(job, ", the only one here, says how large a state is"), ""};
  return {Level::kOk, "job", absl::StrCat(job, ", whose state is the largest of ", jobs, " jobs here; --job chooses"),
          ""};
}

std::optional<Finding> JudgeCheckpoints(const std::string& job, size_t damaged, std::optional<int64_t> valid,
                                        const std::string& root) {
  if (damaged == 0) return std::nullopt;
  const std::string next = absl::StrCat("`cairn list ", job, " --root ", ForShell(root),
                                        " --check` says what is damaged, and docs/repair.md what can be done.");
  if (!valid.has_value()) {
    return Finding{
        Level::kFault, "checkpoints",
        absl::StrCat("job ", job, " has no valid checkpoint: ", damaged, damaged == 1 ? " is" : " are", " damaged"),
        next};
  }
  return Finding{
      Level::kWarning, "checkpoints",
      absl::StrCat("job ", job, ": the newest ", damaged == 1 ? std::string("one is") : absl::StrCat(damaged, " are"),
                   " damaged, so a load takes step ", *valid),
      next};
}

Finding UnknownJob(const std::string& job, const std::string& root) {
  const std::string jobs = root.empty() ? "`cairn jobs`" : absl::StrCat("`cairn jobs --root ", ForShell(root), "`");
  return {Level::kFault, "job",
          absl::StrCat("there is no job ", job, root.empty() ? "" : absl::StrCat(" below ", root)),
          absl::StrCat(jobs, " lists the jobs. For a job that has not begun, give --state-size.")};
}

}  // namespace cairn::cli
