// Builds mappings from statements and answers which part of which source tensor becomes a given part of a target
// tensor, and by which steps. The language is Paddle's AOA ("All-in-One-Arrow"), as docs/mapping.md describes it.
//
//   CAIRN_ASSIGN_OR_RETURN(MappedState mapped, BuildMapping(config, source, destination));
//   std::vector<Entry> entries;
//   CAIRN_RETURN_IF_ERROR(mapped.Resolve(target, entries));
//   for (const Entry& entry : entries) Copy(entry.source_key, entry.source, mapped.steps(entry), entry.target);
#ifndef CAIRN_MAPPING_MAPPING_H_
#define CAIRN_MAPPING_MAPPING_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mapping/diagnostics.h"
#include "mapping/key_space.h"
#include "mapping/program.h"
#include "mapping/state_key.h"
#include "mapping/variables.h"

namespace cairn::aoa {

struct Config {
  std::vector<std::string> statements;  // each one statement, or several on lines of their own
  bool reverse = false;                 // the same statements are read backwards
  bool traceback = true;                // errors say how macros led to the failing statement
  bool legacy_qkv = false;              // old texts: `fused_qkv` from 1 name to 1 is rank-blocked, and
                                        // num_key_value_groups counts the query heads per KV head
  bool allow_missing = false;           // destination tensors without a source are listed, not refused
};

// A part of a target, and the part of a source that fills it. Boxes count elements of the global tensors.
struct Entry {
  Box target;
  std::string_view source_key;     // the source's weight, and the target's optimizer suffix: both views into the
  std::string_view source_suffix;  // mapping. Together they name the stored tensor
  Box source;
  Shape source_shape;  // global
  DType source_dtype = DType::kUnspecified;
  ChainId chain = kNoSteps;
};

// Says what one output name is made of.
struct Output {
  Symbol name;
  VariableId variable;  // kNoVariable: added, or missing with allow_missing: it has no source
  bool added = false;
  bool missing = false;
};

// The result of a mapping. It is immutable: all methods are const and thread-safe, and answers do not depend on the
// order of questions. It owns all that it needs, so the descriptions from which it was built may be destroyed.
class MappedState {
 public:
  MappedState(std::unique_ptr<const Program> program, Variables variables, std::vector<Output> outputs,
              std::vector<Symbol> removed, std::vector<bool> used_sources, std::vector<Shape> declared);

  // Returns the output names, ascending.
  std::span<const Output> outputs() const { return outputs_; }
  // Returns the output of this weight; null if there is none.
  const Output* FindOutput(std::string_view weight) const;
  std::string_view Text(Symbol symbol) const { return program_->symbols().Text(symbol); }

  // Appends the parts of `target` in the order of its variable's slices. Together they tile the box; an output that is
  // added or missing has none. `target.key` may name an optimizer state: it follows its weight, its dtype is not
  // checked, and a scalar state has one entry, from the source with the smallest name. NOT_FOUND
  // (MAPPING_UNKNOWN_NAME): there is no such output. INVALID_ARGUMENT (MAPPING_SHAPE): the dimensions differ, or a
  // reshape cannot cut the part; (MAPPING_DTYPE): the elements arrive in another dtype than the target's. OUT_OF_RANGE
  // (MAPPING_RANGE): the box leaves the variable, perhaps for lack of a transpose.
  absl::Status Resolve(const ShardDesc& target, std::vector<Entry>& entries) const;

  // Returns the steps of an entry in order. postprocess() has them as Paddle writes them: "[1, 0]", "float32",
  // "reshape:[2, 3, 4]".
  std::span<const Step> steps(const Entry& entry) const { return variables_.steps().steps(entry.chain); }
  std::span<const std::string> postprocess(const Entry& entry) const { return variables_.steps().texts(entry.chain); }

  // removed() has the sources that `name -> _` removed; unused() those that no output uses and no statement removed.
  // Both ascend.
  std::vector<std::string_view> removed() const;
  std::vector<std::string_view> unused() const;

  const Program& program() const { return *program_; }
  const Variables& variables() const { return variables_; }

 private:
  // These return the errors of Resolve.
  absl::Status NoOutput(const ShardDesc& target, std::string_view weight) const;
  absl::Status CheckFits(const ShardDesc& target, const Output& output) const;
  absl::Status CheckDtype(const ShardDesc& target, const Variables::Part& part) const;
  // Appends the entry of a state that is one number for the whole weight.
  void ResolveScalar(const ShardDesc& target, const StateKey& key, VariableId variable,
                     std::vector<Entry>& entries) const;

  std::unique_ptr<const Program> program_;
  Variables variables_;
  std::vector<Output> outputs_;
  std::vector<uint32_t> output_of_;  // by symbol, or UINT32_MAX
  std::vector<Symbol> removed_;
  std::vector<bool> used_sources_;
  std::vector<Shape> declared_;  // by output: the destination's global shape; empty if it is not known
};

// Builds a mapping. If there is no `destination`, the outputs are the whole tensors that the statements leave over.
// Errors name the statement. If there are several, the status has the first and their number, `errors` (may be null)
// gets all of them, at most Diagnostics::kKept, and `total` (may be null) gets their true number. Time and memory are
// linear in descriptions, statements after macros, and slices.
absl::StatusOr<MappedState> BuildMapping(const Config& config, std::span<const ShardDesc> source,
                                         std::optional<std::span<const ShardDesc>> destination,
                                         std::vector<MappingError>* errors = nullptr, size_t* total = nullptr);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_MAPPING_H_
