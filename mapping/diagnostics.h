// The faults of a mapping. Each has the user's statement, and the steps by which macros rewrote it to the statement
// that failed.
#ifndef CAIRN_MAPPING_DIAGNOSTICS_H_
#define CAIRN_MAPPING_DIAGNOSTICS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/status/reason.h"
#include "mapping/program.h"

namespace cairn::aoa {

struct MappingError {
  Reason reason;
  std::string message;
  std::optional<std::string> statement;  // the user's own text; unset if the fault belongs to no single statement
  // One rewriting each, such as "id: a.0 -> b.0"; the last one is the step that failed.
  std::vector<std::string> chain;
};

// Collects the faults of one build. Keeps the first kKept and counts all.
class Diagnostics {
 public:
  static constexpr size_t kKept = 64;

  // `line` is kNoLine if the fault belongs to no single statement.
  void Add(Reason reason, LineId line, Stage stage, std::string message);
  bool empty() const { return total_ == 0; }
  size_t total() const { return total_; }
  // Returns true while another fault would be kept. Callers make costly texts (suggestions) only then.
  bool has_room() const { return found_.size() < kKept; }

  std::vector<MappingError> Render(const Program& program, bool with_chains) const;

 private:
  struct Found {
    Reason reason;
    LineId line;
    Stage stage;
    std::string message;
  };
  std::vector<Found> found_;
  size_t total_ = 0;
};

// Returns the first error as a status, which also gives the number `total`; the metadata has "statement". `errors` must
// not be empty.
absl::Status ToStatus(const std::vector<MappingError>& errors, size_t total);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_DIAGNOSTICS_H_
