#include "store/read/tags.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr size_t kMaxShown = 20;

std::string Shown(const std::set<std::string>& tags) {
  if (tags.empty()) return "it has no tags";
  std::vector<std::string> shown;
  for (const std::string& tag : tags) {
    if (shown.size() == kMaxShown) break;
    shown.push_back(tag);
  }
  return absl::StrCat("its tags are ", absl::StrJoin(shown, ", "), tags.size() > kMaxShown ? ", ..." : "");
}

}  // namespace

absl::StatusOr<int64_t> FindTag(const std::string& job, const std::string& tag, const std::vector<StepTags>& steps) {
  std::vector<int64_t> found;
  std::set<std::string> all;
  for (const StepTags& step : steps) {
    all.insert(step.tags.begin(), step.tags.end());
    if (std::find(step.tags.begin(), step.tags.end(), tag) != step.tags.end()) found.push_back(step.step);
  }
  if (found.size() == 1) return found.front();
  const std::string name = absl::StrCat(job, "@", tag);
  for (const StepTags& step : steps) {
    if (!found.empty() || step.unread.ok()) continue;
    return Annotate(step.unread, absl::StrCat(name, ": the tags of step ", step.step, " cannot be read"),
                    {{"job", job}, {"tag", tag}, {"step", absl::StrCat(step.step)}});
  }
  if (found.empty()) {
    return MakeError(Reason::kNotCommitted,
                     absl::StrCat("no checkpoint of ", job, " has the tag \"", tag, "\"; ", Shown(all)),
                     {{"job", job},
                      {"tag", tag},
                      {"next", absl::StrCat("`cairn list ", job, "` shows the steps and their tags; `cairn tag ", job,
                                            "@STEP ", tag, "` gives a step this one.")}});
  }
  return MakeError(Reason::kBadRequest,
                   absl::StrCat(name, " names ", found.size(), " checkpoints: steps ", absl::StrJoin(found, ", ")),
                   {{"job", job},
                    {"tag", tag},
                    {"next", absl::StrCat("Name the step by its number; or run `cairn untag ", name,
                                          "`, then `cairn tag` for the right one.")}});
}

}  // namespace cairn
