#include "common/format/checkpoint_path.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/printable.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr std::string_view kOutcomeEnding = ".verdict";
constexpr std::string_view kDeletionEnding = ".deleted";
constexpr std::string_view kTagEnding = ".tag";
constexpr std::string_view kLatest = "latest";

bool AllDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool IsTag(std::string_view text) {
  constexpr size_t kMaxBytes = 64;
  return !text.empty() && text.size() <= kMaxBytes && text != kLatest &&
         absl::ascii_isalpha(static_cast<unsigned char>(text.front())) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
         });
}

std::optional<uint32_t> AttemptBefore(std::string_view ending, std::string_view name) {
  if (!name.ends_with(ending)) return std::nullopt;
  return ParseAttemptName(name.substr(0, name.size() - ending.size()));
}

}  // namespace

absl::Status CheckJobName(std::string_view job) {
  constexpr size_t kMaxBytes = 200;
  const auto fault = [&](std::string_view why) {
    const std::string shown = Printable(job.substr(0, 80));
    return MakeError(Reason::kBadJobName, absl::StrCat("the job name \"", shown, "\" ", std::string(why)),
                     {{"job", shown}});
  };
  if (job.size() > kMaxBytes) return fault("is longer than 200 bytes");
  for (absl::string_view segment : absl::StrSplit(absl::string_view(job.data(), job.size()), '/')) {
    if (segment.empty()) return fault("has an empty segment");
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
    if (!letter(segment.front()) || !std::all_of(segment.begin(), segment.end(), [&](char c) {
          return letter(c) || c == '.' || c == '_' || c == '-';
        })) {
      return fault("must be segments of [a-z0-9][a-z0-9._-]* joined by '/': lower-case letters, digits and ._-");
    }
    if (segment.size() == 12 && AllDigits({segment.data(), segment.size()})) {
      return fault("has a segment of twelve digits, which is how steps are named");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTag(std::string_view tag) {
  if (IsTag(tag)) return absl::OkStatus();
  return MakeError(Reason::kBadRequest,
                   absl::StrCat("\"", absl::CHexEscape(absl::string_view(tag.data(), std::min<size_t>(tag.size(), 80))),
                                "\" is no tag: a tag is up to 64 letters, digits, and characters of \"._-\"; the first "
                                "is a letter, and \"latest\" is taken"),
                   {{"next", "Choose another name, as \"paper\" or \"before-the-change\"."}});
}

absl::Status CheckStep(int64_t step) {
  if (step >= 0 && step <= kMaxStep) return absl::OkStatus();
  return MakeError(Reason::kBadStep, absl::StrCat("step ", step, " is not within 0 and ", kMaxStep),
                   {{"step", absl::StrCat(step)}});
}

std::string StepName(int64_t step) { return absl::StrFormat("%012d", step); }

std::string StepDirectory(std::string_view job, int64_t step) {
  return absl::StrCat(std::string(job), "/", StepName(step));
}

std::string AttemptDirectory(std::string_view job, int64_t step, uint32_t attempt) {
  return absl::StrFormat("%s/%04d", StepDirectory(job, step), attempt);
}

std::string OutcomePath(std::string_view job, int64_t step, uint32_t attempt) {
  return absl::StrCat(AttemptDirectory(job, step, attempt), std::string(kOutcomeEnding));
}

std::string RepairedPath(std::string_view job, int64_t step, uint32_t attempt) {
  return absl::StrCat(AttemptDirectory(job, step, attempt), ".repaired");
}

std::string DeletionPath(std::string_view job, int64_t step, uint32_t attempt) {
  return absl::StrCat(AttemptDirectory(job, step, attempt), std::string(kDeletionEnding));
}

std::string PinPath(std::string_view job, int64_t step) {
  return absl::StrCat(StepDirectory(job, step), "/", std::string(kPinName));
}

std::string TagPath(std::string_view job, int64_t step, std::string_view tag) {
  return absl::StrCat(StepDirectory(job, step), "/", std::string(tag), std::string(kTagEnding));
}

std::string RetentionPath(std::string_view job) { return absl::StrCat(std::string(job), "/.retention"); }

std::string BinName(int rank, int bin, int part) {
  std::string name = absl::StrFormat("rank%05d-bin%02d", rank, bin);
  if (part > 0) absl::StrAppend(&name, "-part", part + 1);
  return name;
}

std::optional<int64_t> ParseStepName(std::string_view name) {
  int64_t step;
  if (name.size() != 12 || !AllDigits(name) || !absl::SimpleAtoi(absl::string_view(name.data(), name.size()), &step)) {
    return std::nullopt;
  }
  return step;
}

std::optional<uint32_t> ParseAttemptName(std::string_view name) {
  uint32_t attempt;
  if (name.size() != 4 || !AllDigits(name) ||
      !absl::SimpleAtoi(absl::string_view(name.data(), name.size()), &attempt) || attempt == 0) {
    return std::nullopt;
  }
  return attempt;
}

std::optional<uint32_t> ParseOutcomeName(std::string_view name) { return AttemptBefore(kOutcomeEnding, name); }

std::optional<uint32_t> ParseDeletionName(std::string_view name) { return AttemptBefore(kDeletionEnding, name); }

std::optional<std::string> ParseTagName(std::string_view name) {
  if (!name.ends_with(kTagEnding)) return std::nullopt;
  name.remove_suffix(kTagEnding.size());
  if (!IsTag(name)) return std::nullopt;
  return std::string(name);
}

absl::StatusOr<CheckpointName> ParseCheckpointName(std::string_view text) {
  CheckpointName name;
  const size_t at = text.find('@');
  name.job = std::string(text.substr(0, at));
  if (absl::Status status = CheckJobName(name.job); !status.ok()) {
    const size_t colon = name.job.rfind(':');
    if (at != std::string_view::npos || colon == std::string::npos) return status;
    // The user of "demo:60" probably meant a step.
    const std::string meant = absl::StrCat(name.job.substr(0, colon), "@", name.job.substr(colon + 1));
    if (!ParseCheckpointName(meant).ok()) return status;
    return MakeError(Reason::kBadJobName, std::string(status.message()),
                     {{"next", absl::StrCat("A step stands behind an @: ", meant, ".")}});
  }
  if (at == std::string_view::npos) return name;
  const std::string_view step = text.substr(at + 1);
  if (step == kLatest) {
    name.latest = true;
    return name;
  }
  if (IsTag(step)) {
    name.tag = std::string(step);
    return name;
  }
  int64_t value;
  if (step.size() > 12 || !AllDigits(step) || !absl::SimpleAtoi(absl::string_view(step.data(), step.size()), &value)) {
    return MakeError(Reason::kBadStep,
                     absl::StrCat("\"", std::string(step.substr(0, 40)),
                                  "\" is neither \"latest\", nor a tag, nor a step from 0 to ", kMaxStep));
  }
  name.step = value;
  return name;
}

}  // namespace cairn
