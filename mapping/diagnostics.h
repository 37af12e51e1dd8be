// Collects all that is wrong with a mapping. Each fault has the user's statement, and how macros led from there to the
// statement that failed.
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
  std::optional<std::string> statement;  // the user's own text; none if no single statement is to blame
  std::vector<std::string> chain;        // "id: a.0 -> b.0": one rewriting each; the last one is the step that failed
};

// Collects the faults of one build. Keeps the first kKept and counts all.
class Diagnostics {
 public:
  static constexpr size_t kKept = 64;

  // `line` is kNoLine if no single statement is to blame.
  void Add(Reason reason, LineId line, Stage stage, std::string message);
  bool empty() const { return total_ == 0; }
  size_t total() const { return total_; }
  // Returns true while another fault would be kept. Texts that are costly (suggestions) are made only then.
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

// Returns the first error as a status, with the number of all; the metadata has "statement". `errors` must not be
// empty.
absl::Status ToStatus(const std::vector<MappingError>& errors, size_t total);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_DIAGNOSTICS_H_
