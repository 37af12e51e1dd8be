// Tells people who run a training whether the mirror of its root works.
#ifndef CAIRN_CLI_CLIENT_MIRROR_WATCH_H_
#define CAIRN_CLI_CLIENT_MIRROR_WATCH_H_

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cairn/v1/checkpoint_service.pb.h"
#include "cli/base/command.h"
#include "common/base/mutex.h"

namespace cairn::cli {

// What was said of a mirror, and what is new. Pure.
class MirrorNews {
 public:
  // Takes what the coordinator says now. Returns a line without its end if people should know it: the mirror cannot be
  // used, for another reason than before, or it can again. Else nothing.
  std::string Take(const v1::Mirror& mirror);
  // Returns what was not copied when a training has ended; empty if nothing is missing.
  static std::string AtEnd(const v1::Mirror& mirror);

 private:
  std::string told_;      // the error that people know
  bool stalled_ = false;  // the mirror had not answered when it was last asked
};

// Asks a coordinator about the mirror each minute, in a thread of its own, until it is destroyed; it ends at once if
// the coordinator has no mirror. Nothing is said of a coordinator that does not answer.
class MirrorWatch {
 public:
  // `context` names the coordinator.
  MirrorWatch(CommandContext context, std::string job);
  // Waits for a question under way, for some seconds at most.
  ~MirrorWatch();
  MirrorWatch(const MirrorWatch&) = delete;
  MirrorWatch& operator=(const MirrorWatch&) = delete;

  // Returns lines for people that came since the last call. Does not block.
  std::vector<std::string> TakeNews();
  // Asks once more, and returns MirrorNews::AtEnd; empty if there is no mirror, or no answer within some seconds.
  std::string AtEnd() const;

 private:
  void Run();
  std::optional<v1::Mirror> Ask() const;

  const CommandContext context_;
  const std::string job_;
  Mutex mutex_;
  CondVar changed_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::string> news_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CLIENT_MIRROR_WATCH_H_
