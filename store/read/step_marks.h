// The marks of a step, its pin and its tags, as the names in the step's directory say them.
//
// A mark is a file that is there or not ("pinned", "NAME.tag"), or, where requests may have effect late, the record of
// its last change (change_number.h):
//
//   12-3456-pinned.mark   12-3457-unpinned.mark   12-3458-tag-NAME.mark   12-3459-untag-NAME.mark
//
// Both forms may stand in one step, because a root may be copied. A file counts as the lowest number.
#ifndef CAIRN_STORE_READ_STEP_MARKS_H_
#define CAIRN_STORE_READ_STEP_MARKS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "store/read/change_number.h"
#include "store/storage/storage.h"

namespace cairn {

// Pins and tags have a line of text. Longer ones are not read.
inline constexpr uint64_t kMaxMarkBytes = 4096;

class StepMarks {
 public:
  struct Record {
    std::string name;
    ChangeNumber number;
    bool set = false;
  };

  // Takes a name in the step's directory. One that is no mark's changes nothing.
  void Add(std::string_view name);

  bool pinned() const { return IsSet(""); }
  // Ascending.
  std::vector<std::string> tags() const;
  bool IsSet(const std::string& tag) const;
  // All records of a tag, or of the pin if `tag` is empty; the one that counts is the last.
  std::vector<Record> RecordsOf(const std::string& tag) const;

  // The name of a record.
  static std::string NameOf(const std::string& tag, const ChangeNumber& number, bool set);

 private:
  std::map<std::string, std::vector<Record>> records_;  // by tag; the pin has none
};

// Lists the marks of a step; none if it has no directory. Fails as Storage::List.
absl::StatusOr<StepMarks> ReadMarks(Storage& storage, const std::string& job, int64_t step);
// Returns the text of a mark, of the pin if `tag` is empty; nothing if it is not set. Fails as Storage::Read.
absl::StatusOr<std::optional<std::string>> ReadMark(Storage& storage, const std::string& job, int64_t step,
                                                    const std::string& tag);

}  // namespace cairn

#endif  // CAIRN_STORE_READ_STEP_MARKS_H_
