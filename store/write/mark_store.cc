#include "store/write/mark_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/file/put_result.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/read/step_marks.h"
#include "store/write/changed_record.h"
#include "store/write/retention_file.h"

namespace cairn {
namespace {

// What a record of rules holds that have ended.
constexpr char kNoRules[] = "retention/1 off\n";

std::string RulesDirectory(const std::string& job) { return absl::StrCat(job, "/", kRulesName); }

}  // namespace

absl::Status MarkStore::PutChange(const std::string& path, const std::string& bytes) {
  CAIRN_RETURN_IF_ERROR(root_.Check());
  const PutResult result = storage_.TryPutIfAbsent(path, bytes);
  if (!result.put.ok()) return result.in_doubt ? UnknownOutcome(result.put.status()) : result.put.status();
  if (*result.put == Put::kExists) {
    CAIRN_ASSIGN_OR_RETURN(const std::string standing, storage_.Read(path, kMaxRetentionBytes));
    if (standing != bytes) {
      const std::string file = storage_.FullPath(path);
      return MakeError(Reason::kStorageError, absl::StrCat(file, " was put by another process"),
                       {{"file", file}, {"next", "Look at the present state (`cairn list`), and repeat the command."}});
    }
  }
  // If the root is still this process's, whoever takes it next sees the record.
  const absl::Status held = root_.Check();
  return held.ok() ? held : UnknownOutcome(held);
}

absl::StatusOr<ChangeNumber> MarkStore::NumberAfter(const ChangeNumber& last, const std::string& directory) {
  const ChangeNumber number = NextChange(last, root_.epoch(), clock_.SteadyNow());
  if (ParseChangeNumber(ToString(number)).has_value()) return number;
  const std::string file = storage_.FullPath(directory);
  return MakeError(Reason::kStorageError,
                   absl::StrCat(file, " has a change with the number ", ToString(last), ", which none can follow"),
                   {{"file", file}, {"next", "Nothing counts so far: remove the record with that number."}});
}

absl::Status MarkStore::Set(const std::string& job, int64_t step, const std::string& tag, const std::string& text) {
  return Change(job, step, tag, /*set=*/true, text);
}

absl::Status MarkStore::Clear(const std::string& job, int64_t step, const std::string& tag) {
  return Change(job, step, tag, /*set=*/false, "\n");
}

absl::Status MarkStore::Change(const std::string& job, int64_t step, const std::string& tag, bool set,
                               const std::string& text) {
  CAIRN_ASSIGN_OR_RETURN(const StepMarks marks, ReadMarks(storage_, job, step));
  const std::vector<StepMarks::Record> records = marks.RecordsOf(tag);
  const ChangeNumber last = records.empty() ? ChangeNumber() : records.back().number;
  if (!storage_.ListsExactly() && last == ChangeNumber()) {
    const std::string path = tag.empty() ? PinPath(job, step) : TagPath(job, step, tag);
    CAIRN_RETURN_IF_ERROR(root_.Check());
    return set ? PutRecord(storage_, path, text, /*replace=*/false) : RemoveRecord(storage_, path);
  }
  const std::string directory = StepDirectory(job, step);
  std::string bytes = text;
  if (set && !records.empty() && records.back().set) {
    const auto standing = storage_.Read(absl::StrCat(directory, "/", records.back().name), kMaxMarkBytes);
    if (standing.ok()) bytes = *standing;
  }
  // It is put also if it seems to change nothing: an earlier request for the contrary may be under way.
  CAIRN_ASSIGN_OR_RETURN(const ChangeNumber number, NumberAfter(last, directory));
  CAIRN_RETURN_IF_ERROR(PutChange(absl::StrCat(directory, "/", StepMarks::NameOf(tag, number, set)), bytes));
  std::vector<std::string> outdated;
  for (const StepMarks::Record& record : records) outdated.push_back(record.name);
  // They do not count any more, so it does not matter if some stay.
  if (!outdated.empty()) storage_.RemoveAllOf(directory, outdated).IgnoreError();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ChangeNumber>> MarkStore::RulesOf(const std::string& job) {
  std::vector<ChangeNumber> numbers;
  const auto entries = storage_.List(RulesDirectory(job));
  if (HasReason(entries.status(), Reason::kFileMissing)) return numbers;
  CAIRN_RETURN_IF_ERROR(entries.status());
  for (const Storage::Entry& entry : *entries) {
    if (const auto number = ParseChangeNumber(entry.name); number.has_value()) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

absl::Status MarkStore::SetPolicy(const std::string& job, const PrunePolicy& policy) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<ChangeNumber> numbers, RulesOf(job));
  if (!storage_.ListsExactly() && numbers.empty()) {
    CAIRN_RETURN_IF_ERROR(root_.Check());
    if (policy.empty()) return RemoveRecord(storage_, RetentionPath(job));
    CAIRN_RETURN_IF_ERROR(storage_.MakeDirectories(job));
    return PutRecord(storage_, RetentionPath(job), EncodeRetention(policy), /*replace=*/true);
  }
  const ChangeNumber last = numbers.empty() ? ChangeNumber() : numbers.back();
  CAIRN_ASSIGN_OR_RETURN(const ChangeNumber number, NumberAfter(last, RulesDirectory(job)));
  CAIRN_RETURN_IF_ERROR(PutChange(absl::StrCat(RulesDirectory(job), "/", ToString(number)),
                                  policy.empty() ? kNoRules : EncodeRetention(policy)));
  std::vector<std::string> outdated;
  for (const ChangeNumber& one : numbers) outdated.push_back(ToString(one));
  // They do not count any more, so it does not matter if some stay.
  if (!outdated.empty()) storage_.RemoveAllOf(RulesDirectory(job), outdated).IgnoreError();
  return absl::OkStatus();
}

absl::StatusOr<PrunePolicy> MarkStore::ReadPolicy(const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<ChangeNumber> numbers, RulesOf(job));
  const std::string path =
      numbers.empty() ? RetentionPath(job) : absl::StrCat(RulesDirectory(job), "/", ToString(numbers.back()));
  const auto text = storage_.Read(path, kMaxRetentionBytes);
  if (HasReason(text.status(), Reason::kFileMissing) && numbers.empty()) return PrunePolicy{};
  CAIRN_RETURN_IF_ERROR(text.status());
  if (!numbers.empty() && *text == kNoRules) return PrunePolicy{};
  auto policy = DecodeRetention(*text);
  if (policy.ok()) return policy;
  const std::string file = storage_.FullPath(path);
  return Annotate(policy.status(), file, {{"job", job}, {"file", file}});
}

}  // namespace cairn
